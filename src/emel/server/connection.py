"""Responses that end when their client does: streams of events, and answers that take a while.

A client that goes away is noticed at once, not at the next write: `http.disconnect` is waited for beside the work, and
then the work is cancelled, which frees its lane within a step.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from emel.server import sse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection before its answer was there."""


class EventStream:
    """An ASGI response that sends events (bytes) as they come, and a comment after `ping_seconds` of silence."""

    def __init__(self, events: AsyncGenerator[bytes, None], ping_seconds: float) -> None:
        self._events = events
        self._ping_seconds = ping_seconds
        self._is_silent = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the events end or the client goes away; either way the events' generator is closed."""
        del scope
        headers = {"content-type": sse.CONTENT_TYPE, **sse.HEADERS}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        sending = asyncio.ensure_future(self._send_events(send))
        others = [asyncio.ensure_future(disconnected(receive)), asyncio.ensure_future(self._ping(send))]
        try:
            await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *others):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
            await self._events.aclose()

    async def _send_events(self, send: Send) -> None:
        async for body in self._events:
            self._is_silent = False
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _ping(self, send: Send) -> None:
        while True:
            self._is_silent = True
            await asyncio.sleep(self._ping_seconds)
            if self._is_silent:
                await send({"type": "http.response.body", "body": sse.PING, "more_body": True})


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; ClientGone, with the work cancelled, when the client goes away first."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working


async def disconnected(receive: Receive) -> None:
    """Returns once the client is gone; to be called when the whole body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
