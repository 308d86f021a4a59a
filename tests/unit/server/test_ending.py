"""What is cancelled because the server ends is answered, once and in the shape of its path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from emel.server import sse
from emel.server.ending import Ending

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", sse.CONTENT_TYPE.encode())]}
JSON = {**STREAM, "headers": [(b"content-type", b"application/json")]}
PART = {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True}
END = {"type": "http.response.body", "body": b"", "more_body": False}


def sent_by(path: str, *messages: dict[str, Any]) -> list[Any]:
    """What is sent for an endpoint that sends these messages and is cancelled then."""
    sent: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        for each in messages:
            await send(each)
        raise asyncio.CancelledError

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    asyncio.run(Ending(app)({"type": "http", "path": path, "headers": []}, receive, send))
    return sent


def test_what_has_not_begun_is_503() -> None:
    start, body = sent_by("/v1/completions")
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"5")
    assert body["body"].startswith(b'{"error":{"message":"the server ends')


@pytest.mark.parametrize("parts", [[], [PART], [PART, PART]])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/completions", b'data: {"error":{"message":"the server ends'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'),
    ],
)
def test_a_stream_that_has_begun_ends_with_an_error(path: str, expected: bytes, parts: list[dict[str, Any]]) -> None:
    *before, last = sent_by(path, STREAM, *parts)
    assert before == [STREAM, *parts]
    assert last["body"].startswith(expected)
    assert last["body"].endswith(b"\n\n")
    assert not last["more_body"]


@pytest.mark.parametrize("messages", [[STREAM, PART, END], [JSON, PART], [JSON]])
def test_what_is_over_or_no_stream_is_left_as_it_is(messages: list[dict[str, Any]]) -> None:
    assert sent_by("/v1/completions", *messages) == messages
