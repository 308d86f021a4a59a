"""Wires: where the parts of a response that is sent as it comes go, without waiting for whoever reads them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from starlette.types import Scope, Send

WIRE = "emel.wire"
"""Of a scope: the wire of its connection, where there is a shorter way than ASGI's `send`."""

HURRY = "emel.hurry"
"""Of a scope: where there is a way, what has nothing more that is sent wait for the client, for last words."""


def hurry(scope: Scope) -> None:
    """Has what is sent for a request wait for its client no more, where there is a way."""
    if (resume := scope.get(HURRY)) is not None:
        resume()


class Wire(Protocol):
    """Takes parts at once, as many as come; who sees that there is no room waits before bringing more."""

    n_written: int
    """Parts so far."""

    @property
    def is_full(self) -> bool:
        """Whether `drained` is due before the next part."""

    def write(self, part: bytes) -> bool:
        """Takes a part; whether there is room for another. An empty one is nothing."""

    async def drained(self) -> None:
        """Returns once there is room. OSError when the client is gone and the server says so."""


class AsgiWire:
    """Over ASGI's `send`, which any server has: each part has to be waited for."""

    def __init__(self, send: Send) -> None:
        self.n_written = 0
        self._send = send
        self._parts: list[bytes] = []
        self._sending = asyncio.Lock()

    @property
    def is_full(self) -> bool:
        """Whether something is not sent yet."""
        return self._sending.locked() or bool(self._parts)

    def write(self, part: bytes) -> bool:
        """Keeps it for `drained`."""
        if part:
            self.n_written += 1
            self._parts.append(part)
        return not self.is_full

    async def drained(self) -> None:
        """Sends what was kept, one after the other whoever waits for it."""
        async with self._sending:
            while self._parts:
                body = b"".join(self._parts)
                self._parts.clear()
                await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def write(wire: Wire, part: bytes) -> None:
    """Writes a part, and waits until there is room for the next."""
    if not wire.write(part):
        await wire.drained()
