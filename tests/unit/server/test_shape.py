"""Bodies that are nearly right: true is no number, and a million faults cost no more than one."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from emel.server import shapes
from emel.server.message_requests import MessagesRequest
from emel.server.native_requests import NativeRequest
from emel.server.response_requests import ResponsesRequest
from emel.server.shape_errors import told
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

    from emel.server.shape import Shape

MESSAGES = [{"role": "user", "content": "x"}]
# Path, body, param, what the message says.
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "/v1/completions",
        {"prompt": [True]},
        "prompt[0]",
        "is true: it must be an integer, a string or a list",
    ),
    ("/v1/completions", {"prompt": [[1], [2, False]]}, "prompt[1][1]", "is false: it must be an integer"),
    ("/v1/completions", {"prompt": [1.0]}, "prompt[0]", "is 1.0: it must be an integer, a string or a list"),
    ("/v1/completions", {"prompt": ["a", 5]}, "prompt[1]", "prompt[1] is 5: it must be a string"),
    ("/v1/completions", {"prompt": {}}, "prompt", "prompt is {}: it must be a string or a list"),
    ("/v1/completions", {"prompt": "x", "logprobs": True}, "logprobs", "a number, which true and false are none of"),
    ("/v1/completions", {"prompt": "x", "stop_token_ids": [True]}, "stop_token_ids[0]", "it must be an integer"),
    ("/v1/completions", {"prompt": "x", "stop_token_ids": 5}, "stop_token_ids", "is 5: it must be a list"),
    ("/v1/completions", {"prompt": "x", "logit_bias": [[True, 1]]}, "logit_bias[0][0]", "an integer or a string"),
    ("/v1/completions", {"prompt": "x", "logit_bias": [[1]]}, "logit_bias[0][1]", "is missing: the request needs it"),
    ("/v1/completions", {"prompt": "x", "logit_bias": {"1": "x"}}, "logit_bias", "the bias of 1 must be a number"),
    ("/v1/completions", {"prompt": "x", "seed": 1.5}, "seed", "seed is 1.5: it must be an integer"),
    ("/v1/completions", {"prompt": "x", "seed": 1e300}, "seed", "it must be an integer of fewer digits"),
    ("/v1/completions", {"prompt": "x", "echo": "maybe"}, "echo", "echo is 'maybe': it must be true or false"),
    ("/v1/completions", {"prompt": "x", "choice": ""}, "choice", "choice is '': it must have at least 1 character"),
    ("/v1/completions", {"prompt": "x", "choice": []}, "choice", "choice is []: it must have at least 1 item"),
    ("/completion", {"prompt": ["a", True]}, "prompt[1]", "it must be an integer or a string"),
    ("/detokenize", {"tokens": [1, True]}, "tokens[1]", "tokens[1] is true: it must be an integer"),
    ("/v1/embeddings", {"input": [True]}, "input[0]", "input[0] is true: it must be"),
    ("/v1/embeddings", {"input": [[1, True]]}, "input[0][1]", "is true: it must be an integer"),
    ("/v1/embeddings", {"input": "x", "pooling": "max"}, "pooling", "it must be 'mean', 'cls' or 'last'"),
    ("/v1/chat/completions", {"messages": MESSAGES, "n": True}, "n", "a number, which true and false are none of"),
    ("/v1/chat/completions", {"messages": MESSAGES, "temp": False}, "temp", "a number"),
    ("/v1/chat/completions", {"messages": ["x"]}, "messages[0]", "messages[0] is 'x': it must be an object"),
    ("/v1/chat/completions", {"messages": [{}]}, "messages", "messages[0] has no role: allowed are "),
    ("/v1/chat/completions", {"messages": MESSAGES, "stop": 5}, "stop", "stop is 5: it must be a string or a list"),
    (
        "/v1/chat/completions",
        {"messages": MESSAGES, "response_format": "json"},
        "response_format",
        "response_format is 'json': it must be an object",
    ),
    (
        "/v1/chat/completions",
        {"messages": MESSAGES, "response_format": {}},
        "response_format.type",
        "response_format.type is missing: the request needs it",
    ),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": True}, "", "max_tokens is true: it must be a number"),
    ("/v1/messages", {"messages": [{"role": None}], "max_tokens": 1}, "", "messages[0].role is missing: allowed are"),
    ("/v1/responses", {"input": "x", "top_k": True}, "top_k", "a number"),
    (
        "/v1/responses",
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image"}]}]},
        "input",
        "input[0].content[1] is a part of type 'input_image': only text parts are supported",
    ),
    ("/v1/responses", {"input": [{"type": "image"}]}, "input", "input[0].type is 'image': allowed are message, "),
    ("/tokenize", {"content": None}, "content", "content is null: it must be a string"),
]


@pytest.mark.parametrize(("path", "body", "param", "told"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_is_no_number_or_no_list_of_them_is_400(
    serve: Callable[..., TestClient], path: str, body: dict[str, Any], param: str, told: str
) -> None:
    response = serve(FakeModel("x")).post(path, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert told in error["message"]
    assert error.get("param", "") == param


SHAPES = [
    shapes.ChatRequest, shapes.CompletionRequest, shapes.EmbeddingsRequest, shapes.TokenizeRequest,
    shapes.DetokenizeRequest, shapes.ModelName, NativeRequest, ResponsesRequest, MessagesRequest,
]  # fmt: skip
ODD: list[Any] = [
    None, True, 1, -5, 1.5, 10**30, 10**400, "x", "", [], {}, [1], [True], ["x"], [None], [[1]], [["a"]], [[1, 2, 3]],
    [[True, 1]], [[1, "x"]], [{}], {"a": 1}, {"a": "b"}, {"type": 1}, {"include_usage": 5},
    {"type": "x", "json_schema": 5},
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_every_fault_is_told_in_words_of_json_and_once(shape: type[Shape]) -> None:
    words = re.compile(r"dictionary|instance|validation|tuple|None|True|False|[Ii]nput should|parse|\[[^0-9\]]|int,")
    bodies: list[Any] = [[], 1, "x", None]
    bodies += [{field.alias or name: odd} for name, field in shape.model_fields.items() for odd in ODD]
    for body in bodies:
        try:
            shape.model_validate(body)
        except ValidationError as error:
            message, where = told(error)
            assert not words.search(message), message
            assert message.startswith(where or "the body")


@pytest.mark.parametrize(
    ("path", "begin", "item"),
    [
        ("/v1/chat/completions", b'{"messages":[', b"1"),
        ("/v1/completions", b'{"prompt":[', b"{}"),
        ("/v1/completions", b'{"prompt":"x","logit_bias":[', b"1"),
        ("/v1/responses", b'{"input":[', b"1"),
        ("/detokenize", b'{"tokens":[', b"{}"),
    ],
)
def test_a_list_of_nothing_but_faults_costs_no_more_than_one(
    serve: Callable[..., TestClient], path: str, begin: bytes, item: bytes
) -> None:
    client = serve(FakeModel("x"))
    began = time.process_time()
    response = client.post(path, content=begin + (item + b",") * 1_000_000 + b"1]}")
    assert response.status_code == 400
    assert time.process_time() - began < 6
