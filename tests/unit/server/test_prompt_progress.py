"""What a stream tells before its answer begins: progress of the prompt and comments, as they are asked for."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "a"},
    "/completion": {"prompt": "a"},
}


def told(client: TestClient, model: FakeModel, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream whose prompt is read in three steps, half a second each, and whose answer is "x"."""

    def answer() -> None:
        assert model.submitted.wait(10)
        request = model.requests[-1]
        for n_computed in (10, 60, 100):
            request.progress = (100, 10, n_computed)
            time.sleep(0.5)
        request.say("x")

    model.submitted.clear()
    answering = threading.Thread(target=answer)
    answering.start()
    text = client.post(path, json={**BODIES[path], "stream": True, **fields}).text
    answering.join()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", BODIES)
def test_progress_is_told_until_the_answer_begins(serve: Callable[..., TestClient], path: str) -> None:
    model = FakeModel()
    client = serve(model)
    events = told(client, model, path, return_progress=True)
    seen = [(index, each["prompt_progress"]) for index, each in enumerate(events) if "prompt_progress" in each]
    steps = [(each["total"], each["cache"], each["processed"]) for _, each in seen if each["total"]]
    assert steps == [(100, 10, 10), (100, 10, 60), (100, 10, 100)]
    times = [each["time_ms"] for _, each in seen]
    assert times == sorted(times)
    assert "x" in json.dumps(events[seen[-1][0] + 1])
    assert not any("prompt_progress" in each for each in told(client, model, path))


def test_a_failure_before_the_answer_ends_it(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel(), request_timeout=0.3)
    body = {**BODIES["/completion"], "stream": True, "return_progress": True}
    *_, last = client.post("/completion", json=body).text.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "timeout_error"


@pytest.mark.parametrize("path", BODIES)
def test_comments_come_as_often_as_they_are_asked_for(serve: Callable[..., TestClient], path: str) -> None:
    client = serve(FakeModel(), request_timeout=1.5, ping_seconds=0.2)

    def n_comments(**fields: Any) -> int:
        return client.post(path, json={**BODIES[path], "stream": True, **fields}).text.count(": ping")

    assert n_comments() > 2
    assert n_comments(sse_ping_interval=1) == 1
    assert n_comments(sse_ping_interval=-1) == 0
