"""Hearing: how answers come from the compute thread to the event loop, and back how nobody wants them any more."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from emel.engine.results import Chunk, Completion

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.engine.request import Request

Heard: TypeAlias = Chunk | Completion | Exception
"""A part of an answer, or what ended it."""


class _Bell:
    """Has an event loop hear what other threads kept: all that ring before it does, at once.

    Waking the loop is a system call, and gives the interpreter away: a step has as many answers to tell as lanes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # which has this one, in _bells
        self._ringing: deque[Hearing] = deque()
        self._is_rung = False

    def ring(self, hearing: Hearing) -> None:
        """Has it woken, from any thread; RuntimeError when the loop was closed."""
        self._ringing.append(hearing)
        if self._is_rung:
            return
        loop = self._loop()
        if loop is None:
            raise RuntimeError("the loop is gone")
        self._is_rung = True
        try:
            loop.call_soon_threadsafe(self._wake)
        except BaseException:
            self._is_rung = False
            raise

    def _wake(self) -> None:
        self._is_rung = False  # first: who comes now and is not seen below rings again
        for _ in range(len(self._ringing)):  # who rings meanwhile waits until others of the loop had their turn
            self._ringing.popleft().wake()


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
        self._hearing.taken.discard(self)  # first: who hears of it may ask for the next
        self._keep(completion)

    def on_failure(self, error: Exception) -> None:
        """Keeps it."""
        self._hearing.taken.discard(self)
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

    The compute thread only appends and rings: one wake-up of the loop serves all that there is, of all that listen.
    Nothing waits for a slow reader.
    """

    def __init__(self, n_answers: int, timeout: float | None = None, taken: set[Listener] | None = None) -> None:
        """To be made on the event loop. timeout: seconds from now; then waiting ends with TimeoutError.

        taken: what listens to a model and is not over; each is put in here, and taken out as its end comes.
        """
        loop = asyncio.get_running_loop()
        self.listeners = [Listener(self, index) for index in range(n_answers)]
        self.taken: set[Listener] = set() if taken is None else taken
        self.taken.update(self.listeners)
        self._bell = _bell()
        self.deadline = inf if timeout is None else loop.time() + timeout
        """By the loop's clock."""
        self.heard: deque[tuple[int, Heard]] = deque()
        """What was heard, with the index of its answer; the coroutine takes it from the left."""
        self._sleep: asyncio.Future[bool] | None = None
        self._hear: Callable[[], bool] | None = None
        self._is_ringing = False

    def keep(self, index: int, what: Heard) -> None:
        """Keeps what an answer brought, on the compute thread; RuntimeError when the loop was closed."""
        self.heard.append((index, what))
        self.ring()

    def ring(self) -> None:
        """Has what was heard taken soon, on the event loop; RuntimeError when that was closed."""
        if not self._is_ringing:
            self._is_ringing = True
            self._bell.ring(self)

    def wake(self) -> None:
        """Has what was heard taken by whoever hears, or wakes the coroutine that waits; on the event loop."""
        self._is_ringing = False  # first: what comes now and is not taken below rings again
        sleep = self._sleep
        if sleep is None or sleep.done():
            return
        try:
            if self._hear is None or not self._hear():
                sleep.set_result(True)
        except BaseException as error:  # else others that rang would not be woken
            sleep.set_exception(_for_future(error))

    async def wait(self, seconds: float) -> bool:
        """Whether something is there to take, now or within so many seconds; TimeoutError at the deadline."""
        if not self.heard:
            loop = asyncio.get_running_loop()
            await self._sleep_until(min(self.deadline, loop.time() + seconds), None)
            if not self.heard and loop.time() >= self.deadline:
                raise TimeoutError
        return bool(self.heard)

    async def each(self, hear: Callable[[], bool]) -> None:
        """Calls `hear` now and whenever something is there to take, until it returns False; TimeoutError.

        It is called from the event loop itself, without waking the coroutine: that would be for every token.
        """
        if hear() and not await self._sleep_until(self.deadline, hear):
            raise TimeoutError

    async def _sleep_until(self, time: float, hear: Callable[[], bool] | None) -> bool:
        """Whether it was woken before that time. Whichever comes first counts, so what was heard is not lost."""
        loop = asyncio.get_running_loop()
        self._sleep, self._hear = loop.create_future(), hear
        expiry = loop.call_at(time, self._expire) if time < inf else None
        try:
            return await self._sleep
        finally:
            self._sleep = self._hear = None
            if expiry is not None:
                expiry.cancel()

    def _expire(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(False)


def _for_future(error: BaseException) -> Exception:
    """The error as a coroutine that waits can be given it: not as its own cancellation or end."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    raised = RuntimeError(f"hearing an answer ended in {type(error).__name__}")
    raised.__cause__ = error
    return raised
