"""What is JSON and what is not, and bodies that do not come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.server.body import MAX_DEPTH, parse
from emel.server.errors import ApiError
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

PATH = "/v1/chat/completions"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_json_reads_back(value: Any) -> None:
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value
    assert parse(json.dumps(value).encode()) == value


REFUSED = {
    "NaN": (b'{"temperature": NaN}', "NaN is no number in JSON"),
    "infinity": (b'{"temperature": -Infinity}', "-Infinity is no number in JSON"),
    "too large": (b'{"temperature": 1e999}', "1e999 is larger than every number"),
    "many digits": (b'{"seed": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    "twice": (b'{"model": "a", "model": "b"}', "an object has 'model' twice"),
    "twice inside": (b'{"messages": [{"role": "user", "role": "system"}]}', "'role' twice"),
    "half a pair": (rb'{"prompt": "\ud83d"}', "half of a surrogate pair"),
    "half in a name": (rb'{"\uDC00": 1}', "half of a surrogate pair"),
    "no UTF-8": (b'{"prompt": "\xe4"}', "no UTF-8"),
    "UTF-8 of a surrogate": (b'{"prompt": "\xed\xa0\x80"}', "no UTF-8"),
    "deep lists": (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested too deeply"),
    "very deep": (b"[" * 50_000 + b"]" * 50_000, "nested too deeply"),
    "deep objects": (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested too deeply"),
    "nothing": (b"", "Expecting value"),
    "two": (b"{} {}", "Extra data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_json_is_400_with_the_reason(serve: Callable[..., TestClient], name: str) -> None:
    body, reason = REFUSED[name]
    response = serve(FakeModel("x")).post(PATH, content=body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("the body is not valid JSON: ")
    assert reason in message
    assert len(message) < 200


MISSPELT = {
    "messages": [{"role": "user", "content": "x"}],
    "max_token": 3,
    "temperatures": 0,
    "user": "u",
    "metadata": {},
}


def test_a_field_that_is_nearly_one_is_warned_of_once_for_each_endpoint(
    serve: Callable[..., TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    client = serve(FakeModel("x"))
    for _ in range(2):
        assert client.post("/v1/chat/completions", json=MISSPELT).status_code == 200
    assert client.post("/v1/messages", json={**MISSPELT, "max_tokens": 5}).status_code == 200
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warned == [
        f"{path}: {name!r} is no field and was passed over: did you mean {meant!r}?"
        for path in ("/v1/chat/completions", "/v1/messages")
        for name, meant in (("max_token", "max_tokens"), ("temperatures", "temperature"))
    ]


def test_names_that_clients_make_up_are_no_endless_log(
    serve: Callable[..., TestClient], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.server.body._MOST_WARNED", 12)
    client = serve(FakeModel("x"))
    for index in range(4):
        client.post("/v1/chat/completions", json={**MISSPELT, **{f"temperature{index}{each}": 1 for each in range(9)}})
    assert sum(each.levelno == logging.WARNING for each in caplog.records) == 12


def test_depth_is_counted_along_one_way_only() -> None:
    assert len(parse(b"[" + b",".join([b"[[]]"] * 1000) + b"]")) == 1000
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    assert parse(rb'"\ud83d\ude00"') == "\U0001f600"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_400(body: bytes) -> None:
    with contextlib.suppress(ApiError):
        json.dumps(parse(body), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("path", [PATH, "/v1/messages", "/models/load"])
def test_a_body_that_trickles_is_408(serve: Callable[..., TestClient], path: str) -> None:
    app: Any = serve(FakeModel("x"), body_seconds=0.05).app
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    asyncio.run(app({**scope, "headers": [], "app": app}, receive, send))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    error = json.loads(sent[1]["body"])["error"]
    assert error["type"] == "timeout_error"
    assert error["message"] == "the body was not there within 0.05 seconds"


def test_a_long_body_is_taken(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    body = {"messages": [{"role": "user", "content": "word " * 20_000}]}
    response = serve(model).post(PATH, json=body)
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_a_name_that_comes_twice_is_found_in_one_pass() -> None:
    n_names = 200_000
    body = json.dumps({f"n{index}": 1 for index in range(n_names)})[:-1] + f', "n{n_names - 1}": 2}}'
    began = time.monotonic()
    with pytest.raises(ApiError, match=f"an object has 'n{n_names - 1}' twice"):
        parse(body.encode())
    assert time.monotonic() - began < 10  # pair by pair it took minutes
