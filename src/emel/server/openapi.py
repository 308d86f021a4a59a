"""GET /openapi.json: the endpoints and the shapes of their requests and errors (https://spec.openapis.org/oas/v3.1.0).

The requests' schemas are those that requests are checked with. Responses are described in docs/reference/http.md.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse

from emel import __version__
from emel.server.messages import MessagesRequest
from emel.server.response_requests import ResponsesRequest
from emel.server.shapes import (
    ApplyTemplateRequest,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingsRequest,
    ModelName,
    TokenizeRequest,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.sampling import Shape

JSON, EVENTS, TEXT, HTML = "application/json", "text/event-stream", "text/plain", "text/html"


class _Endpoint(NamedTuple):
    path: str
    summary: str
    shape: type[Shape] | None = None
    produces: tuple[str, ...] = (JSON,)
    parameters: tuple[dict[str, Any], ...] = ()


_MODEL = {"name": "model", "in": "query", "required": False, "schema": {"type": "string"}}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_ENDPOINTS = (
    _Endpoint("/v1/chat/completions", "The next message of a chat", ChatRequest, (JSON, EVENTS)),
    _Endpoint("/v1/completions", "What follows a text", CompletionRequest, (JSON, EVENTS)),
    _Endpoint("/v1/responses", "The next items of a conversation", ResponsesRequest, (JSON, EVENTS)),
    _Endpoint("/v1/messages", "The next message, as Anthropic has it", MessagesRequest, (JSON, EVENTS)),
    _Endpoint("/v1/messages/count_tokens", "Tokens of such a request", MessagesRequest),
    _Endpoint("/v1/embeddings", "Embeddings of texts", EmbeddingsRequest),
    _Endpoint("/v1/models", "All models"),
    _Endpoint("/v1/models/{name}", "One model", parameters=(_NAME,)),
    _Endpoint("/models/load", "Load a model that was unloaded", ModelName),
    _Endpoint("/models/unload", "Give a model's memory back", ModelName),
    _Endpoint("/tokenize", "Token ids of a text", TokenizeRequest),
    _Endpoint("/detokenize", "The text of token ids", DetokenizeRequest),
    _Endpoint("/apply-template", "The prompt of a chat", ApplyTemplateRequest),
    _Endpoint("/health", "Whether the models are there"),
    _Endpoint("/metrics", "Metrics for Prometheus", produces=(TEXT,)),
    _Endpoint("/props", "Defaults, lanes and template of a model", parameters=(_MODEL,)),
    _Endpoint("/machines", "Tables of the state machines"),
    _Endpoint("/live", "The waves as they change", produces=(EVENTS,)),
    _Endpoint("/trace", "Transitions of the state machines as they happen", produces=(EVENTS,)),
    _Endpoint("/openapi.json", "This document"),
    _Endpoint("/", "The page", produces=(HTML,)),
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


async def get_openapi(_request: Request) -> Response:
    """The endpoint."""
    return JSONResponse(document())


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    shapes = {each.shape for each in _ENDPOINTS if each.shape is not None}
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    template = "#/components/schemas/{model}"
    _, found = models_json_schema([(each, "validation") for each in ordered], ref_template=template)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EMEL", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": {each.path: {_method(each): _operation(each)} for each in _ENDPOINTS},
        "components": {
            "schemas": {**found["$defs"], "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _method(endpoint: _Endpoint) -> str:
    return "get" if endpoint.shape is None else "post"


def _operation(endpoint: _Endpoint) -> dict[str, Any]:
    said = {kind: {"schema": {} if kind == JSON else {"type": "string"}} for kind in endpoint.produces}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "done", "content": said},
            "default": {
                "description": "an error; the status is what counts",
                "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
        # Keys are asked for where the server was started with some.
        "security": [{}] if endpoint.path in _OPEN_PATHS else [{"bearer": []}, {"key": []}, {}],
    }
    if endpoint.parameters:
        operation["parameters"] = list(endpoint.parameters)
    if endpoint.shape is not None:
        schema = {"$ref": f"#/components/schemas/{endpoint.shape.__name__}"}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return operation
