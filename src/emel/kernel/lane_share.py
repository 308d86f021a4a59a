"""How many of a pool's lanes are used: fewer while other programs take their CPUs.

Lanes meet after every operation, so one that has lost its CPU holds up all of them until the system gives it one again:
two lanes on a busy machine can be several times as slow as one. How many lanes there are changes no result, so that may
be decided by time.

1. What lanes waited for one another beyond the time they spin is told by the pool. Where none lost its CPU it stays as
   it is, and nothing else is looked at, not even the clock.
2. Where waiting takes much of a WINDOW, half of the lanes are used, and half of those again.
3. After a pause all are tried again; while that fails the pause doubles.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 0.05
"""Seconds that are looked at together: some turns of a busy machine's scheduler."""
MOST_WAITED = 0.3
"""Of the time of all lanes; from there on half of them are not slower."""
LEAST_PAUSE, MOST_PAUSE = 0.25, 4.0
"""Seconds until all lanes are tried again."""


class LaneShare:
    """Decides behind each run how many lanes the next one uses; threads that share a pool may ask at the same time."""

    def __init__(self, n_lanes: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._n_lanes = n_lanes
        self._n_used = n_lanes
        self._clock = clock
        self._pause = LEAST_PAUSE
        self._all_at = 0.0  # when all are tried again
        self._is_trial = False  # all were taken again, and no window has closed since
        self._waited = 0  # nanoseconds, at the end of the last window
        self._began: float | None = None  # the window, where one is open

    def next(self, waited: int) -> int:
        """The lanes to use next. waited: nanoseconds that lanes have waited for one another, all together."""
        if self._n_used < self._n_lanes and self._clock() >= self._all_at:
            self._n_used, self._is_trial = self._n_lanes, True
            self._began, self._waited = None, waited
        elif waited != self._waited:
            self._look(waited, self._clock())
        return self._n_used

    def _look(self, waited: int, now: float) -> None:
        began = self._began  # once: threads that share a pool look at the same time
        if began is None:
            self._began, self._waited = now, waited
            return
        seconds = now - began
        if seconds < WINDOW:
            return
        share = (waited - self._waited) / 1e9 / (seconds * self._n_used)
        if share > MOST_WAITED:
            self._pause = min(2 * self._pause, MOST_PAUSE) if self._is_trial else LEAST_PAUSE
            self._n_used = max(1, self._n_used // 2)
            self._all_at = now + self._pause
        self._is_trial = False
        self._began, self._waited = None, waited
