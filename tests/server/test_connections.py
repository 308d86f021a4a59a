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


def raw_request(server: Server, body: bytes, version: str = "1.1", headers: str = "") -> socket.socket:
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    client.connect((host, int(port)))
    head = f"POST {CHAT} HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    client.sendall(head.encode() + body)
    return client


def events(stream: bytes) -> list[Any]:
    """What the events of a stream say; the last is what ends it."""
    assert stream.endswith(b"data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]


def text_of(stream: bytes) -> str:
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in events(stream) if each["choices"])


def unchunked(body: bytes) -> bytes:
    """The chunks' data (RFC 9112, 7.1), which must end as they should."""
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n_bytes = int(size, 16)
        assert body[n_bytes : n_bytes + 2] == b"\r\n"
        data, body = data + body[:n_bytes], body[n_bytes + 2 :]
        assert bool(n_bytes) == bool(body)
    return data


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


def read_response(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of a response after which the connection is closed."""
    with client, client.makefile("rb") as reader:
        head, _, body = reader.read().partition(b"\r\n\r\n")
    return head, body


def test_old_clients_get_the_same_stream_without_chunks(server: Server) -> None:
    body = json.dumps({**LONG, "stream": True, "max_tokens": 40, "temperature": 0}).encode()
    head, chunks = read_response(raw_request(server, body, headers="connection: close\r\n"))
    assert b"transfer-encoding: chunked" in head.lower()
    old_head, stream = read_response(raw_request(server, body, "1.0"))
    assert b"transfer-encoding" not in old_head.lower()
    assert text_of(stream) == text_of(unchunked(chunks))


@pytest.mark.slow
def test_a_client_that_reads_late_gets_all(server: Server) -> None:
    asked = {**LONG, "stream": True, "max_tokens": 900, "n": 4, "temperature": 1, "logprobs": True, "top_logprobs": 20}
    client = raw_request(server, json.dumps(asked).encode(), headers="connection: close\r\n")
    assert until(lambda: n_lanes(server) == 4)
    assert until(lambda: n_lanes(server) == 0)
    _, chunks = read_response(client)
    assert len(chunks) > 6_000_000  # all buffers on the way hold less
    told = [each["choices"][0]["logprobs"] for each in events(unchunked(chunks))]
    assert sum(len(each["content"]) for each in told if each) == 4 * 900


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
