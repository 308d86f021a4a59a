"""Streams that end with their clients, whenever that is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from emel.server.connection import EventStream
from emel.server.wire import WIRE, AsgiWire, write

if TYPE_CHECKING:
    from emel.server.wire import Wire


class Connection:
    """The ASGI side of one client, which leaves after `n_messages`."""

    def __init__(self, n_messages: float = float("inf"), error: Exception | None = None) -> None:
        self.sent: list[Any] = []
        self._n_messages = n_messages
        self._error = error
        self._is_gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if len(self.sent) >= self._n_messages:
            if self._error is not None:
                raise self._error
            self._is_gone.set()
            return
        self.sent.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [each["body"] for each in self.sent[1:]]


class Source:
    """Events, and what has become of them."""

    def __init__(self, n_events: int, seconds: float = 0.0) -> None:
        self.is_closed = False
        self.n_closings = 0
        self._n_events, self._seconds = n_events, seconds

    async def tell(self, wire: Wire) -> None:
        try:
            for index in range(self._n_events):
                await asyncio.sleep(self._seconds)
                await write(wire, b"%d" % index)
        finally:
            self.is_closed = True

    def close(self) -> None:
        self.n_closings += 1


def run(source: Source, ping_seconds: float = 60.0, **client: Any) -> Connection:
    async def serve() -> Connection:
        connection = Connection(**client)
        await EventStream(source.tell, ping_seconds, source.close)(
            {"method": "POST"}, connection.receive, connection.send
        )
        assert len(asyncio.all_tasks()) == 1
        return connection

    return asyncio.run(serve())


def test_a_stream_sends_all_and_ends() -> None:
    source = Source(3)
    connection = run(source)
    assert connection.bodies == [b"0", b"1", b"2", b""]
    assert [each["more_body"] for each in connection.sent[1:]] == [True, True, True, False]
    assert source.n_closings == 1


@pytest.mark.parametrize("error", [None, OSError("gone")])
@pytest.mark.parametrize("n_messages", [0, 1, 2, 3])
def test_a_client_that_leaves_closes_the_events(n_messages: int, error: Exception | None) -> None:
    source = Source(1000)
    if n_messages == 0 and error is not None:
        with pytest.raises(OSError, match="gone"):
            run(source, n_messages=0, error=error)
    else:
        connection = run(source, n_messages=n_messages, error=error)
        assert len(connection.sent) == n_messages
        assert source.is_closed
    assert source.n_closings == 1


def test_a_stream_that_is_cancelled_before_its_first_event_is_closed() -> None:
    source = Source(1)

    async def cancelled() -> None:
        connection = Connection()
        stream = EventStream(source.tell, 60.0, source.close)
        task = asyncio.ensure_future(stream({"method": "POST"}, connection.receive, connection.send))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert source.n_closings == 1


def test_silence_is_filled_with_comments() -> None:
    bodies = run(Source(2, seconds=0.1), ping_seconds=0.02).bodies
    assert bodies[-1] == b""
    assert bodies.count(b": ping\n\n") >= 3
    assert [each for each in bodies if not each.startswith(b":")] == [b"0", b"1", b""]


def test_events_go_past_the_middleware_and_what_is_around_them_does_not() -> None:
    async def serve() -> tuple[list[Any], list[Any]]:
        watched, direct = Connection(), Connection()
        stream = EventStream(Source(2).tell, 60.0)
        await stream({"method": "POST", WIRE: AsgiWire(direct.send)}, watched.receive, watched.send)
        return watched.sent, direct.sent

    watched, direct = asyncio.run(serve())
    assert [each["type"] for each in watched] == ["http.response.start", "http.response.body"]
    assert [each["body"] for each in direct] == [b"0", b"1"]


def test_a_full_wire_gets_no_comments_and_neither_does_one_that_is_done() -> None:
    class Slow(Connection):
        async def send(self, message: Any) -> None:
            await asyncio.sleep(0.1)
            await super().send(message)

    async def serve() -> Connection:
        connection = Slow()
        await EventStream(Source(1).tell, 0.01)({"method": "POST"}, connection.receive, connection.send)
        return connection

    assert asyncio.run(serve()).bodies == [b"0", b""]


def test_who_asks_for_the_head_gets_nothing_else() -> None:
    source = Source(3)

    async def serve() -> Connection:
        connection = Connection()
        await EventStream(source.tell, 60.0, source.close)({"method": "HEAD"}, connection.receive, connection.send)
        return connection

    connection = asyncio.run(serve())
    assert [each["type"] for each in connection.sent] == ["http.response.start", "http.response.body"]
    assert connection.bodies == [b""]
    assert source.n_closings == 1
