"""Responses that end when their client does: streams of events, and answers that take a while.

A client that goes away is noticed at once, not at the next write: `http.disconnect` is waited for beside the work, and
then the work is cancelled, which frees its lane within a step.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from emel.server import sse
from emel.server.wire import WIRE, AsgiWire, write

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from emel.server.wire import Wire

T = TypeVar("T")
_END = {"type": "http.response.body", "body": b"", "more_body": False}


class ClientGone(Exception):
    """The client closed the connection before its answer was there."""


class EventStream:
    """An ASGI response that sends events (bytes) as they come, and a comment before silence lasts `ping_seconds`."""

    def __init__(
        self,
        tell: Callable[[Wire], Coroutine[Any, Any, None]],
        ping_seconds: float,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """tell: writes the events. close: called at the end in every case, even when `tell` was not."""
        self._tell = tell
        self._ping_seconds = ping_seconds
        self._close = close
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the events end or the client goes away; then telling is cancelled.

        What happens between beginning and end goes past the middleware where there is a way: it looks at how a
        response begins and ends, and would be called for every token.
        """
        headers = {"content-type": sse.CONTENT_TYPE, **sse.HEADERS}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        tasks: list[asyncio.Future[None]] = []
        try:
            await send({"type": "http.response.start", "status": 200, "headers": raw})
            if scope["method"] == "HEAD":
                await send(_END)
                return
            wire = scope.get(WIRE) or AsgiWire(send)
            works = (self._tell_all(wire, send), disconnected(receive), self._ping(wire))
            tasks = [asyncio.ensure_future(each) for each in works]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                with contextlib.suppress(OSError):  # the client is gone
                    tasks[0].result()
        finally:
            self._close()
            await _end(tasks)

    async def _tell_all(self, wire: Wire, send: Send) -> None:
        await self._tell(wire)
        self._is_over = True  # no comment after the end
        await send(_END)

    async def _ping(self, wire: Wire) -> None:
        """A comment after three quiet quarters of the time, so that no silence is longer."""
        n_quiet = n_before = 0
        while True:
            await asyncio.sleep(self._ping_seconds / 4)
            n_quiet = n_quiet + 1 if wire.n_written == n_before else 0
            if n_quiet >= 3 and not wire.is_full and not self._is_over:
                await write(wire, sse.PING)
                n_quiet = 0
            n_before = wire.n_written


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
        await _end([working, leaving])


async def disconnected(receive: Receive) -> None:
    """Returns once the client is gone; to be called when the whole body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(tasks: list[asyncio.Future[Any]]) -> None:
    """Cancels those that run, and waits until they are over; what they fail with for that is nobody's any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
