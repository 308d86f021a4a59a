"""Connections at the level of the system."""

from __future__ import annotations

import contextlib
import gc
import http.client
import select
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from emel.engine.results import Chunk
from emel.server import listening_server
from emel.server.app import create_app
from emel.server.chunked_wire import ChunkedWire
from emel.server.listeners import listener as new_listener
from emel.server.listening_server import new_config
from emel.server.served import ServedModels
from emel.server.settings import Settings
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = b'{"prompt": "a", "stream": true}'


@contextlib.contextmanager
def served(model: FakeModel, **settings: Any) -> Iterator[tuple[str, int]]:
    """Where a model is served, over a socket, as `emel serve` does."""
    loads: dict[str, Any] = {"fake": lambda: model}
    app = create_app(ServedModels(loads), Settings(**settings))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listening_server._Server(new_config(app, Settings(**settings)), app, lambda: None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not (server.started and app.state.models.is_ready):
                time.sleep(0.01)
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = app.state.is_ending = True
            thread.join()


def request(method: str, path: str, body: bytes = b"", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def read_until(client: socket.socket, end: bytes) -> bytes:
    client.settimeout(20)
    received = b""
    while not received.endswith(end):
        part = client.recv(1 << 20)
        assert part, received[-300:]
        received += part
    return received


def texts_of(body: bytes) -> list[bytes]:
    return [line.partition(b'"text":"')[2][:1] for line in body.splitlines() if line.startswith(b"data: {")]


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
def test_a_client_that_reads_nothing_loses_its_connection() -> None:
    with (
        new_listener(Settings(port=0, stalled_seconds=0.3)) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
        listener.accept()[0] as accepted,
    ):
        accepted.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.send(b"x" * 65536)
        poll = select.poll()
        poll.register(accepted, select.POLLERR)
        assert poll.poll(60_000)
        with pytest.raises(TimeoutError):
            accepted.send(b"x")
        assert client.recv(1) == b"x"


def test_streams_take_the_short_way_and_leave_the_connection_as_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = ChunkedWire.write

    def noted(wire: ChunkedWire, part: bytes) -> bool:
        written.append(part)
        return write(wire, part)

    monkeypatch.setattr(ChunkedWire, "write", noted)
    with served(FakeModel("a", "b", "c")) as address:
        client = http.client.HTTPConnection(*address, timeout=20)
        for _ in range(2):  # on one connection
            client.request("POST", "/v1/completions", BODY)
            response = client.getresponse()
            assert response.headers["transfer-encoding"] == "chunked"
            body = response.read()
            assert texts_of(body)[:3] == [b"a", b"b", b"c"]
            assert b"".join(written) == body
            written.clear()
        client.request("GET", "/health")
        assert client.getresponse().read()
        client.close()


def test_old_clients_get_no_chunks() -> None:
    with served(FakeModel("a", "b")) as address, socket.create_connection(address, timeout=20) as client:
        client.sendall(request("POST", "/v1/completions", BODY, "1.0"))
        with client.makefile("rb") as reader:
            head, _, body = reader.read().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert texts_of(body)[:2] == [b"a", b"b"]
    assert body.endswith(b"\n\ndata: [DONE]\n\n")


def test_pipelined_requests_are_answered_one_after_the_other() -> None:
    with served(FakeModel("a")) as address, socket.create_connection(address) as client:
        client.sendall(2 * request("POST", "/v1/completions", BODY) + request("GET", "/health"))
        received = read_until(client, b'{"status":"ok"}')
    assert received.count(b"data: [DONE]\n\n\r\n0\r\n\r\n") == 2


def test_who_asks_for_the_head_of_a_stream_gets_it_alone() -> None:
    with served(FakeModel("a")) as address, socket.create_connection(address) as client:
        client.sendall(request("HEAD", "/live") + request("GET", "/health"))
        received = read_until(client, b'{"status":"ok"}')
    assert b"data:" not in received
    assert received.count(b"\r\n\r\nHTTP/1.1 200") == 1


@pytest.mark.parametrize("first", [b"", request("GET", "/health")])
def test_a_connection_that_sends_half_a_head_is_closed(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_server, "HEADER_SECONDS", 0.3)
    with served(FakeModel("a")) as address, socket.create_connection(address, timeout=20) as client:
        if first:
            client.sendall(first)
            read_until(client, b'{"status":"ok"}')
        client.sendall(b"G")
        assert client.recv(1) == b""


def test_connections_and_their_requests_are_left_to_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Any]] = []
    connection_made = listening_server._Protocol.connection_made

    def noted(protocol: Any, transport: Any) -> None:
        made.append(weakref.ref(protocol))
        connection_made(protocol, transport)

    monkeypatch.setattr(listening_server._Protocol, "connection_made", noted)
    with served(FakeModel("a")) as address:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                with socket.create_connection(address) as client:
                    client.sendall(request("POST", "/v1/completions", BODY))
                    read_until(client, b"\r\n0\r\n\r\n")
            end = time.monotonic() + 20
            while any(each() is not None for each in made) and time.monotonic() < end:
                time.sleep(0.05)
            assert [each() for each in made] == [None] * 3
        finally:
            gc.enable()


def test_a_client_that_reads_late_is_told_no_more_than_there_is_room_for() -> None:
    """What waits for it is what the model said, not what was made of that."""
    model, text = FakeModel(), "x" * 100_000
    with served(model) as address, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address)
        client.sendall(request("POST", "/v1/completions", BODY))
        assert model.submitted.wait(20)
        listener: Any = model.requests[0].listener
        for _ in range(100):
            listener.on_chunk(Chunk(text, (1,)))
        heard, n_left = listener._hearing.heard, -1
        while n_left != len(heard):
            n_left = len(heard)
            time.sleep(0.3)
        assert n_left > 30
        model.requests[0].say("end")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        received = read_until(client, b"\r\n0\r\n\r\n")
    assert received.count(b"x") >= 100 * len(text)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_end_of_the_server_waits_no_longer_for_who_does_not_read(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = FakeModel()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with served(model, drain_seconds=1) as address:
            client.connect(address)
            client.sendall(request("POST", "/v1/completions", BODY, version))
            assert model.submitted.wait(20)
            for _ in range(200):
                model.requests[0].listener.on_chunk(Chunk("x" * 100_000, (1,)))
            time.sleep(0.5)
        assert model.requests[0].is_cancelled.is_set()
    assert not [each for each in caplog.records if each.exc_info or "ASGI" in each.getMessage()]


def test_an_end_of_the_server_does_not_wait_for_who_watches_it() -> None:
    with served(FakeModel("a"), drain_seconds=30) as address, socket.create_connection(address) as client:
        client.sendall(request("GET", "/live"))
        assert client.recv(1)
        began = time.monotonic()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("head", ["content-length: 10\r\n", "transfer-encoding: chunked\r\n"])
def test_a_body_that_nobody_will_read_does_not_keep_its_connection(head: str) -> None:
    with (
        served(FakeModel("a"), api_keys=("k",)) as address,
        socket.create_connection(address, timeout=20) as client,
    ):
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nhost: x\r\n{head}\r\n".encode())
        with client.makefile("rb") as reader:
            assert reader.read().startswith(b"HTTP/1.1 401")
