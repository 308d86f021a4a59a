"""Transcripts: every answer has its own, where it is told, or the request is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from emel.engine.transcript import Transcript
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT, COMPLETIONS, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES, "transcript": True},
    COMPLETIONS: {"prompt": "Hi", "transcript": True},
    NATIVE: {"prompt": "Hi", "transcript": True},
}


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_has_a_transcript_if_it_was_asked_for(serve: Callable[..., TestClient], path: str) -> None:
    model = FakeModel("x")
    client = serve(model)
    answer = client.post(path, json=BODIES[path]).json()
    told = Transcript.from_json(answer["transcript"])
    assert list(told.prompt_ids) == model.requests[0].prompt_ids
    assert (told.fingerprint, told.kv_type, told.is_constrained) == ("emel-1-fake", "f16", False)
    assert all("transcript" not in each for each in answer.get("choices", ()))
    assert "transcript" not in client.post(path, json=BODIES[path] | {"transcript": False}).json()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_each_of_several_answers_has_its_own(serve: Callable[..., TestClient], path: str) -> None:
    answer = serve(FakeModel("x")).post(path, json={**BODIES[path], "n": 2}).json()
    assert "transcript" not in answer
    assert [len(Transcript.from_json(each["transcript"]).steps) for each in answer["choices"]] == [2, 2]


def test_answers_to_several_prompts_have_those_of_their_prompts(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    answer = client.post(COMPLETIONS, json={"prompt": [[1], [2, 3]], "n": 2, "transcript": True}).json()
    assert [each["transcript"]["prompt_ids"] for each in answer["choices"]] == [[1], [1], [2, 3], [2, 3]]
    told = events_of(client.post(COMPLETIONS, json={"prompt": [[1], [2, 3]], "transcript": True, "stream": True}).text)
    found = {each["choices"][0]["index"]: each["transcript"]["prompt_ids"] for each in told if "transcript" in each}
    assert found == {0: [1], 1: [2, 3]}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_stream_has_them_in_the_last_event_of_each_choice(serve: Callable[..., TestClient], path: str) -> None:
    events = events_of(serve(FakeModel("x")).post(path, json={**BODIES[path], "n": 2, "stream": True}).text)
    ends = [each for each in events if each["choices"][0]["finish_reason"]]
    assert sorted(each["choices"][0]["index"] for each in ends) == [0, 1]
    assert [each for each in events if "transcript" in each] == ends


def test_the_last_event_of_a_native_stream_has_it(serve: Callable[..., TestClient]) -> None:
    events = events_of(serve(FakeModel("x")).post(NATIVE, json={**BODIES[NATIVE], "stream": True}).text)
    assert ["transcript" in each for each in events] == [each["stop"] for each in events]


@pytest.mark.parametrize("path", BODIES)
def test_it_tells_of_a_constraint(serve: Callable[..., TestClient], path: str) -> None:
    answer = serve(FakeModel("x")).post(path, json={**BODIES[path], "regex": "x"}).json()
    assert answer["transcript"]["is_constrained"] is True


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", {"input": "Hi"}), ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5})],
)
def test_protocols_without_a_place_for_it_refuse_it(
    serve: Callable[..., TestClient], path: str, body: dict[str, Any]
) -> None:
    client = serve(FakeModel("x"))
    refused = client.post(path, json={**body, "transcript": True})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("transcript is not supported here: ask /v1/chat/completions")
    assert client.post(path, json={**body, "transcript": False}).status_code == 200
