"""Turns: threads compute one at a time, first come first served, and one that was cut off leaves no damage.

1. A plain lock is not fair: who releases it and wants it again at once gets it again. Here a thread waits for its turn
   in a doorway that holds one; whoever just had a turn finds it taken, so a long answer cannot shut out a short one.
2. A step that ends in an exception (a KeyboardInterrupt may come between any two calls) may have left things half
   done: `repair` runs before whatever comes next.
3. `soon` is for finalizers and signal handlers, which run in the midst of anything, even of a step of their own thread:
   it never waits for what its caller holds, and what it is given runs when the step is over.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


class Turns:
    """One step at a time, in whichever thread asks for it."""

    __slots__ = ("_doorway", "_left_over", "_lock", "_owner", "_repair", "_was_cut")

    def __init__(self, repair: Callable[[], None]) -> None:
        # Reentrant, because finalizers run anywhere; only `_owner` says that a step runs.
        self._doorway = threading.RLock()
        self._lock = threading.RLock()
        self._repair = repair
        self._owner = 0  # the thread whose step runs
        self._was_cut = False
        self._left_over: deque[Callable[[], object]] = deque()

    def run(self, step: Callable[[], R]) -> R:
        """Calls `step` in this thread's turn, and returns or raises what it does; waits at most for those before it.

        RequestError when this thread's own step is still running, as for a signal handler in its midst.
        """
        if self._owner == threading.get_ident():
            raise RequestError("a step of this thread is still running: a signal handler cannot make another request")
        try:
            with self._doorway:
                self._lock.acquire()
            return self._run_locked(step)
        finally:
            # Only the lock knows whether it was acquired: an interrupt may have come first. Inlined, since one could
            # come at the beginning of a method too.
            try:  # noqa: SIM105 - suppress() costs more than the whole turn
                self._lock.release()
            except RuntimeError:
                pass

    def soon(self, action: Callable[[], object]) -> None:
        """Calls `action` between two steps: in this thread's turn, or when the step of this very thread is over."""
        try:
            if not self._lock.acquire(blocking=False):
                self.run(action)  # another thread has it, so nobody in the doorway waits for this one
            elif self._owner:
                self._left_over.append(action)
            else:
                self._run_locked(action)
        finally:
            try:  # noqa: SIM105 - as above
                self._lock.release()
            except RuntimeError:
                pass

    def _run_locked(self, step: Callable[[], R]) -> R:
        if self._was_cut:
            self._repair()
            self._was_cut = False
        self._owner = threading.get_ident()
        try:
            return step()
        except BaseException:
            self._was_cut = True
            raise
        finally:
            self._owner = 0
            if self._left_over:
                self._run_locked(self._left_over.popleft())
