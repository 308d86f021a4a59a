"""Parts of responses on their way to clients."""

from __future__ import annotations

import asyncio
from typing import Any

from emel.server.wire import AsgiWire, write


def test_parts_that_wait_are_sent_together() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        assert wire.is_full
        await asyncio.sleep(0)
        sent.append(message)

    async def tell() -> None:
        assert wire.write(b"")
        assert not wire.write(b"a")
        assert not wire.write(b"b")
        assert wire.is_full
        await wire.drained()
        assert not wire.is_full
        await write(wire, b"c")
        await write(wire, b"")
        await wire.drained()

    wire = AsgiWire(send)
    asyncio.run(tell())
    assert sent == [{"type": "http.response.body", "body": body, "more_body": True} for body in (b"ab", b"c")]
    assert wire.n_written == 3


def test_what_comes_while_something_is_sent_follows_it() -> None:
    bodies: list[bytes] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0.01)
        bodies.append(message["body"])

    async def tell() -> None:
        wire = AsgiWire(send)
        wire.write(b"a")
        sending = asyncio.ensure_future(wire.drained())
        await asyncio.sleep(0)
        assert not wire.write(b"b")
        await sending

    asyncio.run(tell())
    assert bodies == [b"a", b"b"]


def test_parts_keep_their_order_whoever_waits() -> None:
    bodies: list[bytes] = []
    room = asyncio.Event()

    async def send(message: Any) -> None:
        await room.wait()
        bodies.append(message["body"])

    async def tell() -> None:
        wire = AsgiWire(send)
        first = asyncio.ensure_future(write(wire, b"a"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(write(wire, b"b"))
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        room.set()
        await asyncio.gather(first, second)

    asyncio.run(tell())
    assert bodies == [b"a", b"b"]
