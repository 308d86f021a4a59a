"""Requests for asyncio: what the compute thread tells goes to the event loop that asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emel.engine.results import Chunk, Completion
from emel.engine.submission import is_constrained, with_constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Self

    from emel.engine.request import Request
    from emel.engine.session import Session


class _LoopListener:
    """Puts what it hears into a queue of an event loop; cancels the request when the loop is closed."""

    def __init__(self, heard: asyncio.Queue[Chunk | Completion | Exception]) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = heard
        self.wants_chunks = True
        self.request: Request | None = None

    def on_chunk(self, chunk: Chunk) -> None:
        """Hands it over."""
        if self.wants_chunks:
            self._tell(chunk)

    def on_end(self, completion: Completion) -> None:
        """Hands it over."""
        self._tell(completion)

    def on_failure(self, error: Exception) -> None:
        """Hands it over."""
        self._tell(error)

    def _tell(self, what: Chunk | Completion | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, what)
        except RuntimeError:  # the loop is closed: nobody will ever read it
            if self.request is not None:
                self.request.cancel()


class AsyncStream:
    """The chunks of one answer: an asynchronous iterator, and context manager that closes it. For one event loop.

    Make it in a coroutine. The answer is computed from then on, whether it is read or not. Cancelling the task that
    reads it cancels the request, as `aclose` and leaving it to be collected do. A constraint is compiled in a thread
    before; one that cannot be had raises RequestError where the first chunk would come.
    """

    def __init__(self, submit: Callable[..., Request], options: Mapping[str, Any], session: Session) -> None:
        self._is_done = True
        self._heard: asyncio.Queue[Chunk | Completion | Exception] = asyncio.Queue()
        self._listener = _LoopListener(self._heard)
        self._compiling: asyncio.Task[None] | None = None
        if is_constrained(options):
            self._compiling = asyncio.ensure_future(self._begin(submit, options, session))
        else:
            self._listener.request = submit(self._listener, **options)
        self._is_done = False
        self.completion: Completion | None = None
        """The whole answer, once it was read to its end or closed (then "cancelled"; None if it had not begun)."""

    async def _begin(self, submit: Callable[..., Request], options: Mapping[str, Any], session: Session) -> None:
        try:
            prepared = await asyncio.to_thread(with_constraint, options, session)
            self._listener.request = submit(self._listener, **prepared)
        except Exception as error:  # its reader raises it
            self._heard.put_nowait(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._is_done:
            raise StopAsyncIteration
        try:
            heard = await self._heard.get()
        except BaseException:
            self._cancel()
            raise
        if isinstance(heard, Exception):
            self._is_done = True
            raise heard
        self.completion = heard if isinstance(heard, Completion) else heard.completion
        if isinstance(heard, Chunk):
            return heard
        self._is_done = True
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancels what is left; waits for the step that runs. Harmless when repeated."""
        if self._is_done:
            return
        self._cancel()
        while self._listener.request is not None:
            heard = await self._heard.get()
            if isinstance(heard, Exception):
                return
            if isinstance(heard, Completion):
                self.completion = heard
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        if self._listener.request is not None:
            self._listener.request.cancel()
        elif self._compiling is not None:
            self._compiling.cancel()


async def complete_async(submit: Callable[..., Request], options: Mapping[str, Any], session: Session) -> Completion:
    """Submits a request and waits for its end; cancels it when the task is cancelled."""
    if is_constrained(options):
        options = await asyncio.to_thread(with_constraint, options, session)
    heard: asyncio.Queue[Chunk | Completion | Exception] = asyncio.Queue()
    listener = _LoopListener(heard)
    listener.wants_chunks = False
    request = listener.request = submit(listener, **options)
    try:
        result = await heard.get()
    except BaseException:
        request.cancel()
        raise
    if isinstance(result, Exception):
        raise result
    assert isinstance(result, Completion)
    return result
