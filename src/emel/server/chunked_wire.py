"""The short way of a stream's parts under uvicorn: to the connection itself, past the parser of HTTP.

A response of unknown length is sent in chunks (RFC 9112, 7.1): its parts, each behind its length. h11 makes a chunk in
the same way, and nothing of what it knows of the connection changes by one; the beginning and the end of the response
stay its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle


class ChunkedWire:
    """The connection of one request. For between beginning and end of a response of unknown length."""

    __slots__ = ("_cycle", "_flow", "_stalled_seconds", "_write", "n_written")

    def __init__(self, cycle: RequestResponseCycle, stalled_seconds: float) -> None:
        """stalled_seconds: after so long the connection of a client that does not read is given up."""
        self.n_written = 0
        self._stalled_seconds = stalled_seconds
        self._cycle = cycle
        self._flow = cycle.flow
        self._write = cycle.transport.write

    @staticmethod
    def is_for(scope: Scope) -> bool:
        """Whether what is sent for a request is chunks: to older clients it is not, and for HEAD there is nothing."""
        return bool(scope["http_version"] == "1.1" and scope["method"] != "HEAD")

    @property
    def is_full(self) -> bool:
        """Whether the client has not read enough of what is there."""
        return self._flow.write_paused

    def write(self, part: bytes) -> bool:
        """Sends a part, as far as the client reads; to one that is gone, nothing."""
        if part and not self._cycle.disconnected:
            self.n_written += 1
            self._write(b"%x\r\n%b\r\n" % (len(part), part))
        return not self._flow.write_paused

    async def drained(self) -> None:
        """Waits until the client has read enough, or is gone."""
        try:
            async with asyncio.timeout(self._stalled_seconds):
                await self._flow.drain()
        except TimeoutError:
            self._cycle.transport.abort()  # which ends the stream as any other end of the connection does
            await self._flow.drain()
