"""The process that serves: uvicorn, ended by signals as services are, and with a limit on slow headers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from emel.errors import EmelError
from emel.server.access_log import JsonLines
from emel.server.chunked_wire import ChunkedWire
from emel.server.listeners import listening
from emel.server.served_model import LoadState
from emel.server.wire import HURRY, WIRE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

    from emel.server.settings import Settings

HEADER_SECONDS = 20.0
"""What a client has to send the headers of a request, from connecting or from its last response on."""
_WONDER_SECONDS = 0.3
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Protocol(H11Protocol):
    """HTTP/1.1, with a limit on slow headers and a short way for streams."""

    def __init__(self, *arguments: Any, stalled_seconds: float, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._stalled_seconds = stalled_seconds
        self._app, self.app = self.app, self._serve
        self._expecting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app = self._app  # no cycle of references is left to the collector
        if self._expecting is not None:
            self._expecting.cancel()

    def on_response_complete(self) -> None:
        self._expect_request()
        super().on_response_complete()

    def _expect_request(self) -> None:
        """Connections that send no whole request head, if there were thousands, would hold all file descriptors."""
        if self._expecting is not None:
            self._expecting.cancel()
        self._expecting = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._close_if_silent, self.cycle)

    def _close_if_silent(self, last_cycle: RequestResponseCycle | None) -> None:
        if self.cycle is last_cycle and not self.transport.is_closing():
            self.transport.close()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        scope[HURRY] = self.flow.resume_writing
        if ChunkedWire.is_for(scope):
            scope[WIRE] = ChunkedWire(self.cycle, self._stalled_seconds)
        try:
            await self._app(scope, receive, send)
        finally:
            for each in (WIRE, HURRY):
                scope.pop(each, None)


class _Server(uvicorn.Server):
    """SIGINT and SIGTERM let running requests end, and exit with 0; a second one ends at once, with 1.

    It ends by itself when no model of its start can be loaded: `failure` is why.
    """

    def __init__(self, config: uvicorn.Config, app: Starlette, say_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.failure: Exception | None = None
        self._state = app.state
        self._say_ready = say_ready
        self._at_path: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._again = ""

    def serve_at(self, bound: socket.socket) -> None:
        """Serves at an address or a path until a signal."""
        self._at_path = bound if bound.family is socket.AF_UNIX else None
        self.run([bound] if self._at_path is None else [])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._at_path is not None:  # uvicorn would take the path of whoever has it, and let everybody in
            self.servers.append(await self._listen_at_path(self._at_path))
        self._watching = asyncio.ensure_future(self._watch_start())
        gc.freeze()  # what was imported stays, so no collection between two tokens has to walk through it

    async def _listen_at_path(self, bound: socket.socket) -> asyncio.Server:
        config: Any = self.config
        new_protocol = partial(
            config.http_protocol_class, config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(new_protocol, sock=bound, ssl=config.ssl, backlog=config.backlog)

    async def _watch_start(self) -> None:
        failure = await self._state.models.started()
        if self.should_exit:
            return
        if failure is None:
            self._say_ready()
        else:
            self.failure = failure
            self.should_exit = self._state.is_ending = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        telling = asyncio.ensure_future(self._tell_waiting())
        try:
            await super().shutdown(sockets)
        finally:
            telling.cancel()
        for each in list(self.server_state.connections):  # of clients that do not read
            cast("_Protocol", each).transport.abort()

    async def _tell_waiting(self) -> None:
        """What the end waits for, unless that is over before anybody wonders."""
        await asyncio.sleep(_WONDER_SECONDS)
        loading = ", ".join(each.name for each in self._state.models if each.state is LoadState.LOADING)
        if n_running := len(self.server_state.tasks):
            waited = f"up to {self._state.settings.drain_seconds:g} s for {_requests(n_running)}"
        elif loading:
            waited = f"until {loading} is loaded"
        else:
            return
        sys.stderr.write(f"waiting {waited}; {self._again} ends at once\n")
        sys.stderr.flush()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # which alone hears them
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        del frame
        if self.should_exit:
            n_running = len(self.server_state.tasks)
            told = f"emel: ended at once, {_requests(n_running)} unanswered\n" if n_running else "emel: ended at once\n"
            with contextlib.suppress(OSError):
                os.write(2, told.encode())  # sys.stderr may be in the middle of another line
            os._exit(1)
        self._again = "Ctrl-C again" if sig == signal.SIGINT else "a second signal"
        self.should_exit = self._state.is_ending = True


def serve(app: Starlette, settings: Settings, say_url: Callable[[str], None], say_ready: Callable[[str], None]) -> int:
    """Serves until a signal ends it; the exit code.

    EmelError when it cannot listen there, or without its TLS; what kept the model from being loaded, when all failed.

    say_url: told where the server can be reached, once the place is its own. say_ready: told it again, once all models
    of the start are there that can be.
    """
    config = new_config(app, settings)
    _load(config, settings)
    with listening(settings) as (bound, url):
        say_url(url)
        server = _Server(config, app, partial(say_ready, url))
        server.serve_at(bound)
    if server.failure is not None:
        raise server.failure
    return 0 if server.started else 1


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def new_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves it."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=cast("Any", partial(_Protocol, stalled_seconds=settings.stalled_seconds)),
        loop="uvloop",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(settings.drain_seconds),
        ssl_keyfile=settings.tls_key,
        ssl_certfile=settings.tls_certificate,
    )


def _load(config: uvicorn.Config, settings: Settings) -> None:
    """Has uvicorn read the key and the certificate before anybody is told that something listens."""
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise EmelError(
            f"no TLS with the key {settings.tls_key!r} and the certificate {settings.tls_certificate!r}: "
            f"{error.strerror or error}",
            hint="both are PEM files, and the certificate is that of the key",
        ) from error


def log_to_stderr(level: int) -> None:
    """Lines of the server on stderr, each a JSON object."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn tells what nothing of ours does: each request that it cancels has a line anyway."""
    return not str(record.msg).startswith("Cancel %s running task")
