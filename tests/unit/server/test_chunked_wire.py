"""Streams that go past the parser of HTTP are the bytes that it would have made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from emel.server.chunked_wire import ChunkedWire

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
RESPONSE = h11.Response(status_code=200, headers=[("content-type", "text/event-stream")])


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data


def new_wire() -> tuple[ChunkedWire, Transport, Any]:
    transport: Any = Transport()
    cycle: Any = SimpleNamespace(transport=transport, flow=FlowControl(transport), disconnected=False)
    return ChunkedWire(cycle, 60.0), transport, cycle


def response(write_part: Callable[[h11.Connection, Transport, bytes], Any], parts: list[bytes]) -> bytes:
    server, transport = h11.Connection(h11.SERVER), Transport()
    server.receive_data(REQUEST)
    while not isinstance(server.next_event(), h11.EndOfMessage):
        pass
    transport.write(server.send(RESPONSE) or b"")
    for part in parts:
        write_part(server, transport, part)
    transport.write(server.send(h11.EndOfMessage()) or b"")
    assert server.our_state is h11.DONE
    return bytes(transport.written)


@given(st.lists(st.binary(max_size=40)))
def test_bytes_are_those_of_h11(parts: list[bytes]) -> None:
    def by_h11(server: h11.Connection, transport: Transport, part: bytes) -> None:
        transport.write(server.send(h11.Data(data=part)) or b"")

    def by_wire(_server: h11.Connection, transport: Transport, part: bytes) -> None:
        cycle: Any = SimpleNamespace(transport=transport, flow=SimpleNamespace(write_paused=False), disconnected=False)
        assert ChunkedWire(cycle, 60.0).write(part)

    assert response(by_wire, parts) == response(by_h11, parts)


def test_a_client_that_reads_too_little_is_waited_for() -> None:
    async def tell() -> None:
        wire, _, cycle = new_wire()
        assert wire.write(b"a")
        cycle.flow.pause_writing()
        assert wire.is_full
        assert not wire.write(b"b")
        waiting = asyncio.ensure_future(wire.drained())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        cycle.flow.resume_writing()
        await waiting
        assert not wire.is_full
        assert wire.n_written == 2

    asyncio.run(tell())


def test_a_client_that_is_gone_is_sent_nothing() -> None:
    wire, transport, cycle = new_wire()
    cycle.disconnected = True
    assert wire.write(b"a")
    assert not transport.written
    assert not wire.n_written


def test_a_client_that_does_not_read_at_all_loses_its_connection() -> None:
    async def tell() -> None:
        _, transport, cycle = new_wire()
        wire = ChunkedWire(cycle, stalled_seconds=0.02)
        transport.abort = lambda: asyncio.get_running_loop().call_soon(cycle.flow.resume_writing)  # type: ignore[attr-defined]
        cycle.flow.pause_writing()
        await asyncio.wait_for(wire.drained(), 10)
        assert not wire.is_full

    asyncio.run(tell())


@pytest.mark.parametrize(("version", "method"), [("1.1", "POST"), ("1.0", "POST"), ("1.1", "HEAD")])
def test_only_what_is_sent_in_chunks_has_one(version: str, method: str) -> None:
    expected = (version, method) == ("1.1", "POST")
    assert ChunkedWire.is_for({"http_version": version, "method": method}) is expected
