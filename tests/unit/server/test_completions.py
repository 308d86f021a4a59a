"""The completions endpoint over a fake model."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from unit.server.fake_model import FakeModel
from unit.server.test_chat import events_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

PATH = "/v1/completions"


def test_a_completion_has_the_shape_clients_read(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("Hel", "lo")
    answer = serve(model).post(PATH, json={"prompt": "a"}).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}]
    assert model.requests[0].options["max_tokens"] == 16


def test_several_prompts_and_choices_are_numbered_through(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    body = {"prompt": ["ab", "c"], "n": 2, "echo": True, "max_tokens": -1}
    answer = serve(model).post(PATH, json=body).json()
    told = [(each["index"], each["text"]) for each in answer["choices"]]
    assert told == [(0, "abx"), (1, "abx"), (2, "cx"), (3, "cx")]
    assert answer["usage"]["completion_tokens"] == 8
    assert "max_tokens" not in model.requests[0].options


@pytest.mark.parametrize("prompt", [[3, 4], [[3, 4]]])
def test_prompts_may_be_token_ids(serve: Callable[..., TestClient], prompt: list[Any]) -> None:
    model = FakeModel("x")
    assert serve(model).post(PATH, json={"prompt": prompt}).status_code == 200
    assert model.requests[0].prompt_ids == [3, 4]


def test_a_stream_says_the_same_in_parts(serve: Callable[..., TestClient]) -> None:
    body = {"prompt": "ab", "stream": True, "echo": True, "stream_options": {"include_usage": True}}
    *parts, last = events_of(serve(FakeModel("Hel", "lo")).post(PATH, json=body).text)
    assert [each["choices"][0]["text"] for each in parts] == ["ab", "Hel", "lo", ""]
    assert [each["choices"][0]["finish_reason"] for each in parts] == [None, None, None, "stop"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({}, "prompt is missing: the request needs it"),
    "empty": ({"prompt": ""}, "the prompt has no tokens"),
    "one of them empty": ({"prompt": ["a", ""]}, "the prompt has no tokens"),
    "of a wrong kind": ({"prompt": {"a": 1}}, "prompt"),
    "suffix": ({"prompt": "a", "suffix": "b"}, "suffix is not supported"),
    "best_of": ({"prompt": "a", "best_of": 3}, "best_of is 3: only n, 1, is supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_client_does_wrong_is_400_with_the_reason(serve: Callable[..., TestClient], name: str) -> None:
    body, reason = REFUSED[name]
    response = serve(FakeModel("x")).post(PATH, json=body)
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"], json.dumps(response.json())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dry_sequence_breakers", [f"s{index}" for index in range(100_000)]),
        ("dry_sequence_breakers", ["ab" * 100_000]),
        ("logit_bias", [["e", 1]] * 100_000),
        ("logit_bias", {"e" * 1_000_000: 1}),
        ("prompt", [1] * 1_000_000),
    ],
)
def test_what_would_take_minutes_is_refused_at_once(serve: Callable[..., TestClient], field: str, value: Any) -> None:
    client = serve(FakeModel("x"))
    began = time.monotonic()
    response = client.post(PATH, json={"prompt": "a", "echo": True, "dry_multiplier": 1, field: value})
    assert response.status_code == 400
    assert time.monotonic() - began < 20
    if field != "prompt":
        assert response.json()["error"]["param"] == field
