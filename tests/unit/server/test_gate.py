"""Who may come in, and with how much."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

import pytest

from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer second"}, {"authorization": "bearer  first"}, {"x-api-key": "second"}]
)
def test_any_key_opens(serve: Callable[..., TestClient], headers: dict[str, str]) -> None:
    client = serve(FakeModel("x"), api_keys=("first", "second"))
    assert client.post(PATH, json=CHAT, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer"}, {"authorization": "Basic first"}, {"x-api-key": "firs"}, {"x-api-key": "first2"}],
)
def test_no_key_and_wrong_keys_are_401(serve: Callable[..., TestClient], headers: dict[str, str]) -> None:
    model = FakeModel("x")
    response = serve(model, api_keys=("first",)).post(PATH, json=CHAT, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"
    assert "Authorization: Bearer KEY" in response.json()["error"]["message"]
    is_sent = headers.get("x-api-key") is not None
    expected = "the API key sent is none of this server's: " if is_sent else "an API key is needed: "
    assert response.json()["error"]["message"].startswith(expected)
    assert not model.requests


def test_health_needs_no_key(serve: Callable[..., TestClient]) -> None:
    assert serve(FakeModel("x"), api_keys=("k",)).get("/health").json() == {"status": "ok"}


def test_a_body_that_announces_too_much_is_413(serve: Callable[..., TestClient]) -> None:
    response = serve(FakeModel("x"), max_body_bytes=1000).post(PATH, content=b" " * 1001)
    assert response.status_code == 413
    assert response.json()["error"]["message"] == "the body has 1001 bytes: this server takes 1000"


def test_a_body_that_turns_out_to_be_too_much_is_413(serve: Callable[..., TestClient]) -> None:
    parts = (b" " * 400 for _ in range(3))
    response = serve(FakeModel("x"), max_body_bytes=1000).post(PATH, content=parts)
    assert response.status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"messages": [}'])
def test_a_body_that_is_no_json_is_400(serve: Callable[..., TestClient], body: bytes) -> None:
    response = serve(FakeModel("x")).post(PATH, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("the body is not valid JSON")


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"'])
def test_a_body_that_is_no_object_is_400(serve: Callable[..., TestClient], body: bytes) -> None:
    assert serve(FakeModel("x")).post(PATH, content=body).status_code == 400


def test_paths_and_methods_that_are_none_are_said_in_the_same_shape(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    assert client.get("/nowhere").json()["error"]["type"] == "not_found_error"
    assert client.get(PATH).status_code == 405


def test_other_origins_are_let_in_only_where_that_is_set(serve: Callable[..., TestClient]) -> None:
    origin = {"origin": "http://a.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in serve(FakeModel("x")).options(PATH, headers=origin).headers
    allowed = serve(FakeModel("x"), cors_origins=("http://a.example",)).options(PATH, headers=origin)
    assert allowed.headers["access-control-allow-origin"] == "http://a.example"


def test_more_requests_than_may_wait_are_429(serve: Callable[..., TestClient]) -> None:
    model = FakeModel()
    model.wave.view.n_lanes = 1
    client = serve(model, max_waiting=2)
    with ThreadPoolExecutor(6) as executor:  # at once: the wave has seen none of them yet
        asked = [executor.submit(client.post, PATH, json=CHAT) for _ in range(6)]
        refused = [each.result() for each in itertools.islice(as_completed(asked, 20), 3)]
        assert [each.status_code for each in refused] == [429] * 3
        assert refused[0].headers["retry-after"] == "1"
        told = "answers run or wait, and this request is for 1: this server runs 1 at a time and lets 2 wait"
        assert refused[0].json()["error"]["message"].startswith(f"3 {told}")
        for each in model.requests:
            each.say("x")
        assert sorted(each.result().status_code for each in asked) == [200] * 3 + [429] * 3
    model.texts = ("x",)
    assert client.post(PATH, json={**CHAT, "n": 3}).status_code == 200


@pytest.mark.parametrize("end", ["said", "failed", "timed out"])
def test_who_is_answered_or_fails_leaves_its_place(serve: Callable[..., TestClient], end: str) -> None:
    model = FakeModel()
    model.wave.view.n_lanes = 1
    client = serve(model, max_waiting=0, request_timeout=0.05 if end == "timed out" else None)
    for _ in range(3):
        model.submitted.clear()
        with ThreadPoolExecutor(1) as executor:
            asked = executor.submit(client.post, PATH, json=CHAT)
            if end in ("said", "failed"):
                assert model.submitted.wait(20)
                request = model.requests[-1]
                request.say("x") if end == "said" else request.fail(ValueError("it broke"))
            statuses = {"said": 200, "failed": 500, "timed out": 504}
            assert asked.result(20).status_code == statuses[end]


def test_an_answer_that_takes_too_long_is_504_and_given_up(serve: Callable[..., TestClient]) -> None:
    model = FakeModel()
    client = serve(model, request_timeout=0.05)
    response = client.post(PATH, json=CHAT)
    assert response.status_code == 504
    told = "the answer was not ready within 0.05 seconds (--timeout): ask for fewer tokens, or allow more"
    assert response.json()["error"]["message"] == told
    assert told in client.post(PATH, json={**CHAT, "stream": True}).text
    assert model.requests[0].is_cancelled.wait(5)


def test_either_header_opens_when_both_are_there(serve: Callable[..., TestClient]) -> None:
    headers = {"authorization": "Bearer other", "x-api-key": "first"}
    assert serve(FakeModel("x"), api_keys=("first",)).post(PATH, json=CHAT, headers=headers).status_code == 200


def test_more_answers_than_could_ever_wait_are_400(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model, max_waiting=2)
    for path, body in ((PATH, {**CHAT, "n": 11}), ("/v1/completions", {"prompt": ["a"] * 4, "n": 3})):
        response = client.post(path, json=body)
        assert response.status_code == 400
        assert "this server takes 10 at a time" in response.json()["error"]["message"]
    assert not model.requests


def test_errors_have_anthropics_shape_under_its_paths(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"), api_keys=("k",), max_body_bytes=1000)
    headers = {"x-api-key": "k"}
    expected = {
        "authentication_error": client.post("/v1/messages", json={}),
        "invalid_request_error": client.post("/v1/messages", json={}, headers=headers),
        "request_too_large": client.post("/v1/messages", content=b" " * 2000, headers=headers),
    }
    for kind, response in expected.items():
        assert set(response.json()) == {"type", "error"}
        assert response.json()["type"] == "error"
        assert response.json()["error"]["type"] == kind
    assert client.get("/v1/messages", headers=headers).json()["type"] == "error"
    for path in ("/v1/messages/batches", "/v1/messages/nope"):
        assert client.post(path, json={}, headers=headers).json()["error"]["type"] == "not_found_error"
        assert client.post(path, json={}, headers=headers).json()["type"] == "error"
    assert "type" not in client.post("/v1/messagesque", json={}, headers=headers).json()
