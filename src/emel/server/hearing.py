"""Hearing: how an answer comes from the compute thread to the event loop, and back how nobody wants it any more."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import TYPE_CHECKING

from emel.engine.results import Chunk, Completion
from emel.server.errors import of_failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from emel.engine.request import Request


class _Bell:
    """Wakes coroutines of an event loop from other threads: all that are named before the loop hears it, at once.

    Waking the loop is a system call, and gives the interpreter away: a step has as many answers to tell as lanes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # which has this one, in _bells
        self._sleepers: deque[asyncio.Event] = deque()
        self._is_rung = False

    def ring(self, sleeper: asyncio.Event) -> None:
        """Has it set, from any thread; RuntimeError when the loop was closed."""
        self._sleepers.append(sleeper)
        if self._is_rung:
            return
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the loop is gone")
        self._is_rung = True
        try:
            loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            self._is_rung = False
            raise

    def _wake(self) -> None:
        self._is_rung = False  # first: who comes now and is not seen below rings again
        while self._sleepers:
            self._sleepers.popleft().set()


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = weakref.WeakKeyDictionary()


def _bell() -> _Bell:
    loop = asyncio.get_running_loop()
    if (bell := _bells.get(loop)) is None:
        bell = _bells[loop] = _Bell(loop)
    return bell


class Hearing:
    """A listener that keeps chunks for one coroutine.

    The compute thread only appends and, when the coroutine sleeps, wakes it: one wake-up serves all chunks there are,
    of all that listen. Nothing waits for a slow reader.
    """

    def __init__(self, timeout: float | None = None) -> None:
        """To be made on the event loop. `request` is to be set to the request it listens to, once that is known.

        timeout: seconds from now; the chunks end with TimeoutError when they are not there by then.
        """
        self.request: Request | None = None
        self._bell = _bell()
        self._deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        self._heard: deque[Chunk | Completion | Exception] = deque()
        self._news = asyncio.Event()
        self._is_woken = False

    def cancel(self) -> None:
        """Ends the request within a step; harmless when it is over."""
        if self.request is not None:
            self.request.cancel()

    # ---- the compute thread

    def on_chunk(self, chunk: Chunk) -> None:
        """Keeps it."""
        self._hear(chunk)

    def on_end(self, completion: Completion) -> None:
        """Ends the chunks."""
        self._hear(completion)

    def on_failure(self, error: Exception) -> None:
        """Ends the chunks with an error."""
        self._hear(error)

    def _hear(self, what: Chunk | Completion | Exception) -> None:
        self._heard.append(what)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._bell.ring(self._news)
            except RuntimeError:  # the loop was closed: nobody is there any more
                self.cancel()

    # ---- the event loop

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The chunks as they come; ApiError for what the request failed with. Left early, it cancels the request."""
        is_over = False
        try:
            while not is_over:
                if self._deadline is None:
                    await self._news.wait()
                else:
                    async with asyncio.timeout_at(self._deadline):
                        await self._news.wait()
                self._news.clear()
                self._is_woken = False
                while self._heard:
                    what = self._heard.popleft()
                    if isinstance(what, Chunk):
                        yield what
                        continue
                    is_over = True
                    if isinstance(what, Exception):
                        raise of_failure(what) from what
        finally:
            if not is_over:
                self.cancel()
