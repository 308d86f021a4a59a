"""Connections at the level of the system."""

from __future__ import annotations

import contextlib
import select
import socket

import pytest

from emel.server.listening_server import _listener
from emel.server.settings import Settings


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
def test_a_client_that_reads_nothing_loses_its_connection() -> None:
    with (
        _listener(Settings(port=0, stalled_seconds=0.3)) as listener,
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
