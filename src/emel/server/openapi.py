"""GET /openapi.json: the endpoints, the shapes of requests, answers and errors (https://spec.openapis.org/oas/v3.1.0).

The requests' schemas are those that requests are checked with; to those of answers tests hold every answer.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse

from emel import __version__
from emel.server.answer_shapes import (
    ChatCompletion,
    EmbeddingList,
    InputTokens,
    MessageTold,
    NativeCompletion,
    ResponseTold,
    TextCompletion,
    TokenCount,
)
from emel.server.errors import is_anthropic
from emel.server.message_requests import MessagesRequest
from emel.server.model_shapes import (
    Health,
    MachineTold,
    ModelCard,
    ModelChanged,
    ModelList,
    PromptTold,
    Props,
    Slot,
    TextTold,
    TokenList,
)
from emel.server.native_requests import NativeRequest
from emel.server.response_requests import ResponsesRequest
from emel.server.shapes import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingsRequest,
    ModelName,
    TokenizeRequest,
)

if TYPE_CHECKING:
    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.answer_shapes import Told
    from emel.server.shape import Shape

JSON, EVENTS, TEXT, HTML = "application/json", "text/event-stream", "text/plain", "text/html"


class Endpoint(NamedTuple):
    """A path and what it takes and answers. `answer`: the shape of its JSON (None: any object)."""

    path: str
    summary: str
    shape: type[Shape] | None = None
    answer: type[Told] | None = None
    produces: tuple[str, ...] = (JSON,)
    parameters: tuple[dict[str, Any], ...] = ()
    is_list: bool = False
    """Whether it answers with a list of such."""


_MODEL = {"name": "model", "in": "query", "required": False, "schema": {"type": "string"}}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_FAIL = {"name": "fail_on_no_slot", "in": "query", "required": False, "schema": {"enum": ["0", "1"]}}
ENDPOINTS = (
    Endpoint("/v1/chat/completions", "The next message of a chat", ChatRequest, ChatCompletion, (JSON, EVENTS)),
    Endpoint("/v1/completions", "What follows a text", CompletionRequest, TextCompletion, (JSON, EVENTS)),
    Endpoint("/completion", "The same, as llama.cpp has it", NativeRequest, NativeCompletion, (JSON, EVENTS)),
    Endpoint("/v1/responses", "The next items of a conversation", ResponsesRequest, ResponseTold, (JSON, EVENTS)),
    Endpoint("/v1/responses/input_tokens", "Tokens of such a request", ResponsesRequest, InputTokens),
    Endpoint("/v1/messages", "The next message, as Anthropic has it", MessagesRequest, MessageTold, (JSON, EVENTS)),
    Endpoint("/v1/messages/count_tokens", "Tokens of such a request", MessagesRequest, TokenCount),
    Endpoint("/v1/embeddings", "Embeddings of texts", EmbeddingsRequest, EmbeddingList),
    Endpoint("/v1/models", "All models", answer=ModelList),
    Endpoint("/v1/models/{name}", "One model", answer=ModelCard, parameters=(_NAME,)),
    Endpoint("/models/load", "Load a model that was unloaded", ModelName, ModelChanged),
    Endpoint("/models/unload", "Give a model's memory back", ModelName, ModelChanged),
    Endpoint("/tokenize", "Token ids of a text", TokenizeRequest, TokenList),
    Endpoint("/detokenize", "The text of token ids", DetokenizeRequest, TextTold),
    Endpoint("/apply-template", "The prompt of a chat", ChatRequest, PromptTold),
    Endpoint("/health", "Whether the models are there", answer=Health),
    Endpoint("/metrics", "Metrics for Prometheus", produces=(TEXT,)),
    Endpoint("/props", "Defaults, lanes and template of a model", answer=Props, parameters=(_MODEL,)),
    Endpoint("/slots", "Who computes", answer=Slot, parameters=(_MODEL, _FAIL), is_list=True),
    Endpoint("/machines", "Tables of the state machines", answer=MachineTold, is_list=True),
    Endpoint("/live", "The waves as they change", produces=(EVENTS,)),
    Endpoint("/trace", "Transitions of the state machines as they happen", produces=(EVENTS,)),
    Endpoint("/openapi.json", "This document"),
    Endpoint("/", "The page", produces=(HTML,)),
)
_OPEN_PATHS = frozenset({"/", "/health"})
_ERROR_FIELDS = {
    "message": {"type": "string"},
    "type": {"type": "string"},
    "param": {"type": ["string", "null"]},
    "code": {"type": ["string", "null"]},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "object", "required": ["message", "type"], "properties": _ERROR_FIELDS},
    },
}


# Each event of a stream.
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}, "event": {"type": "string"}},
}
_ANTHROPIC_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}


async def get_openapi(_request: Request) -> Response:
    """The endpoint."""
    return JSONResponse(document())


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    shapes = {shape for each in ENDPOINTS for shape in (each.shape, each.answer) if shape is not None}
    ordered = sorted(shapes, key=_name)
    template = "#/components/schemas/{model}"
    _, found = models_json_schema([(each, "validation") for each in ordered], ref_template=template)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EMEL", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {each.path: {_method(each): _operation(each)} for each in ENDPOINTS},
        "components": {
            "schemas": {**found["$defs"], "Error": _ERROR, "AnthropicError": _ANTHROPIC_ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _name(shape: type[BaseModel]) -> str:
    return shape.__name__


def _method(endpoint: Endpoint) -> str:
    return "get" if endpoint.shape is None else "post"


def _answer(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"type": "object"}
    one = _reference(endpoint.answer.__name__)
    return {"type": "array", "items": one} if endpoint.is_list else one


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    schemas = {JSON: _answer(endpoint), EVENTS: _EVENT, TEXT: {"type": "string"}, HTML: {"type": "string"}}
    said = {kind: {"schema": schemas[kind]} for kind in endpoint.produces}
    error = "AnthropicError" if is_anthropic(endpoint.path) else "Error"
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "done", "content": said},
            "default": {
                "description": "an error; the status is what counts",
                "content": {JSON: {"schema": _reference(error)}},
            },
        },
        # Keys are asked for where the server was started with some.
        "security": [{}] if endpoint.path in _OPEN_PATHS else [{"bearer": []}, {"key": []}, {}],
    }
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.shape is not None:
        schema = _reference(endpoint.shape.__name__)
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return operation
