"""Hearing: how answers come from the compute thread to the event loop, and back how nobody wants them any more."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from emel.engine.results import Chunk, Completion

if TYPE_CHECKING:
    from emel.engine.request import Request

Heard: TypeAlias = Chunk | Completion | Exception
"""A part of an answer, or what ended it."""


class _Bell:
    """Wakes coroutines of an event loop from other threads: all that are named before the loop hears it, at once.

    Waking the loop is a system call, and gives the interpreter away: a step has as many answers to tell as lanes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # which has this one, in _bells
        self._sleepers: deque[Hearing] = deque()
        self._is_rung = False

    def ring(self, sleeper: Hearing) -> None:
        """Has it woken, from any thread; RuntimeError when the loop was closed."""
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
            self._sleepers.popleft().wake()


_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bell] = weakref.WeakKeyDictionary()


def _bell() -> _Bell:
    loop = asyncio.get_running_loop()
    if (bell := _bells.get(loop)) is None:
        bell = _bells[loop] = _Bell(loop)
    return bell


class Listener:
    """Keeps what one answer brings where the others of its HTTP request are kept. All but `cancel`: compute thread.

    `request` is to be set to the request it listens to, once that is known.
    """

    def __init__(self, hearing: Hearing, index: int) -> None:
        self.request: Request | None = None
        self._hearing = hearing
        self._index = index

    def on_chunk(self, chunk: Chunk) -> None:
        """Keeps it."""
        self._keep(chunk)

    def on_end(self, completion: Completion) -> None:
        """Keeps it."""
        self._keep(completion)

    def on_failure(self, error: Exception) -> None:
        """Keeps it."""
        self._keep(error)

    def cancel(self) -> None:
        """Ends the request within a step; harmless when it is over."""
        if self.request is not None:
            self.request.cancel()

    def _keep(self, what: Heard) -> None:
        try:
            self._hearing.keep(self._index, what)
        except RuntimeError:  # the loop was closed: nobody is there any more
            self.cancel()


class Hearing:
    """What the answers of one HTTP request bring, kept for one coroutine.

    The compute thread only appends and, when the coroutine sleeps, wakes it: one wake-up serves all that there is, of
    all that listen. Nothing waits for a slow reader.
    """

    def __init__(self, n_answers: int, timeout: float | None = None) -> None:
        """To be made on the event loop. timeout: seconds from now; then waiting ends with TimeoutError."""
        loop = asyncio.get_running_loop()
        self.listeners = [Listener(self, index) for index in range(n_answers)]
        self._bell = _bell()
        self._deadline = None if timeout is None else loop.time() + timeout
        self._heard: deque[tuple[int, Heard]] = deque()
        self._sleep: asyncio.Future[None] | None = None
        self._is_ringing = False

    def keep(self, index: int, what: Heard) -> None:
        """Keeps what an answer brought, on the compute thread; RuntimeError when the loop was closed."""
        self._heard.append((index, what))
        if not self._is_ringing:
            self._is_ringing = True
            self._bell.ring(self)

    def wake(self) -> None:
        """Wakes the coroutine that waits, on the event loop."""
        self._is_ringing = False  # first: what comes now and is not seen by take() rings again
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def take(self) -> list[tuple[int, Heard]]:
        """What was heard since the last time, with the index of its answer."""
        heard = self._heard
        return [heard.popleft() for _ in range(len(heard))]

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether something is there to take, now or within so many seconds; TimeoutError at the deadline."""
        loop = asyncio.get_running_loop()
        if not self._heard and (seconds is not None or self._deadline is not None):
            limits = [each for each in (self._deadline, seconds and loop.time() + seconds) if each is not None]
            try:
                async with asyncio.timeout_at(min(limits)):
                    await self._news(loop)
            except TimeoutError:
                if self._deadline is not None and loop.time() >= self._deadline:
                    raise
        elif not self._heard:
            await self._news(loop)
        return bool(self._heard)

    async def _news(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._heard:
            self._sleep = loop.create_future()
            try:
                await self._sleep
            finally:
                self._sleep = None
