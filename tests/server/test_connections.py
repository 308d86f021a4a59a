"""Clients that go away, are slow, or come all at once."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.conftest import Server

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Write a long story about a fox."}],
    "max_tokens": 2000,
    "ignore_eos": True,
}


def until(holds: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if holds():
            return True
        time.sleep(0.05)
    return False


def raw_request(server: Server, body: bytes) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.create_connection((host, int(port)))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def n_lanes(server: Server) -> int:
    view = server.model.wave.snapshot()
    return len(view.lanes) + len(view.waiting)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", ["prefill", "decode"])
def test_a_client_that_goes_away_frees_its_lane(server: Server, stream: bool, moment: str) -> None:
    before = server.model.wave.counters.n_cancelled
    text = "fox " * 1500 if moment == "prefill" else "Write about a fox."
    body = {**LONG, "messages": [{"role": "user", "content": text}], "stream": stream, "cache_prompt": False}
    client = raw_request(server, json.dumps(body).encode())
    view = server.model.wave.snapshot
    if moment == "prefill":
        assert until(lambda: n_lanes(server) == 1)
    else:
        assert until(lambda: any(lane.n_tokens > 2 for lane in view().lanes))
    client.close()
    assert until(lambda: n_lanes(server) == 0)
    assert server.model.wave.counters.n_cancelled == before + 1


@pytest.mark.slow
def test_a_client_that_does_not_read_holds_no_lane(server: Server) -> None:
    body = {**LONG, "stream": True, "max_tokens": 300}
    client = raw_request(server, json.dumps(body).encode())
    try:
        assert until(lambda: n_lanes(server) == 1)
        assert until(lambda: n_lanes(server) == 0)
    finally:
        client.close()


PROMPTS = {
    "ascii": "Count from one to five.",
    "cjk": "请用中文说你好 然后重复 数据模型。",
    "emoji": "Repeat: 👩‍👩‍👧‍👦🇩🇪🥲",
}
STOPS: dict[str, list[str]] = {"none": [], "one token": [" the"], "many tokens": [" of the"], "refuted": ["\n\n\n\n"]}


def asked(kind: str, prompt: str, stop: list[str]) -> dict[str, Any]:
    common: dict[str, Any] = {"temperature": 0, "max_tokens": 16, "stop": stop}
    if kind == "chat":
        return {**common, "messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": 1}
    return {**common, "prompt": prompt, "logprobs": 1}


def answer(server: Server, kind: str, body: dict[str, Any]) -> tuple[str, str, Any]:
    """(text, finish reason, log probabilities), streamed or not; every event valid JSON in UTF-8."""
    path = CHAT if kind == "chat" else "/v1/completions"
    response = httpx.post(server.url + path, json=body, timeout=120)
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        [choice] = response.json()["choices"]
        text = choice["message"]["content"] if kind == "chat" else choice["text"]
        return text, choice["finish_reason"], tokens_of(kind, [choice["logprobs"]])
    events = [each.removeprefix("data: ") for each in response.content.decode().split("\n\n") if each]
    assert events.pop() == "[DONE]"
    choices = [json.loads(each)["choices"][0] for each in events]
    text = "".join((each["delta"].get("content") or "") if kind == "chat" else each["text"] for each in choices)
    return text, choices[-1]["finish_reason"], tokens_of(kind, [each["logprobs"] for each in choices])


def tokens_of(kind: str, logprobs: list[Any]) -> list[Any]:
    told = [each for each in logprobs if each]
    if kind == "chat":
        return [(entry["id"], entry["logprob"]) for each in told for entry in each["content"]]
    return [pair for each in told for pair in zip(each["tokens"], each["token_logprobs"], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_text_and_log_probabilities_are_the_same_however_they_are_asked_for(server: Server, kind: str) -> None:
    """Streamed or not, with and without stops, in every script, cold and warm, alone and eight at once."""
    cases = [asked(kind, prompt, stop) for prompt, stop in product(PROMPTS.values(), STOPS.values())]
    alone = [answer(server, kind, {**each, "cache_prompt": False}) for each in cases]
    warm = [answer(server, kind, {**each, "stream": True}) for each in cases]
    assert warm == alone
    crowd = [{**each, "stream": bool(index % 2)} for index, each in enumerate(cases)]
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(lambda each: answer(server, kind, each), crowd)) == alone
    for case, (text, reason, _) in zip(cases, alone, strict=True):
        assert not any(stop in text for stop in case["stop"])
        assert reason in ("stop", "length")
        assert "�" not in text[:-1]  # the limit may cut the last character
