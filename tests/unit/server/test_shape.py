"""Bodies that are nearly right: true is no number, and a million faults cost no more than one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

MESSAGES = [{"role": "user", "content": "x"}]
# Path, body, param, what the message says.
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("/v1/completions", {"prompt": [True]}, "prompt.0", "a valid integer (it is True)"),
    ("/v1/completions", {"prompt": [[1], [2, False]]}, "prompt.1.1", "a valid integer (it is False)"),
    ("/v1/completions", {"prompt": [1.0]}, "prompt.0", "a valid integer (it is 1.0)"),
    ("/v1/completions", {"prompt": ["a", 5]}, "prompt.1", "a valid string (it is 5)"),
    ("/v1/completions", {"prompt": "x", "logprobs": True}, "logprobs", "a number, which true and false are none of"),
    ("/v1/completions", {"prompt": "x", "stop_token_ids": [True]}, "stop_token_ids.0", "a valid integer"),
    ("/v1/completions", {"prompt": "x", "logit_bias": [[True, 1]]}, "logit_bias.0.0", "a valid"),
    ("/v1/completions", {"prompt": "x", "logit_bias": {"1": "x"}}, "logit_bias", "the bias of 1 should be a number"),
    ("/completion", {"prompt": ["a", True]}, "prompt.1", "a valid"),
    ("/detokenize", {"tokens": [1, True]}, "tokens.1", "a valid integer (it is True)"),
    ("/v1/embeddings", {"input": [True]}, "input.0", "input should be a valid"),
    ("/v1/embeddings", {"input": [[1, True]]}, "input.0.1", "a valid integer (it is True)"),
    ("/v1/chat/completions", {"messages": MESSAGES, "n": True}, "n", "a number, which true and false are none of"),
    ("/v1/chat/completions", {"messages": MESSAGES, "temp": False}, "temp", "a number"),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": True}, "", "max_tokens: input should be a number"),
    ("/v1/responses", {"input": "x", "top_k": True}, "top_k", "a number"),
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
