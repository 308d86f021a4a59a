"""WaitingLine: who is admitted next. First come first served, and nobody waits for ever.

1. A request's rank is its arrival number minus its priority times PRIORITY_LEAD: one more of priority overtakes those
   that came up to so many arrivals before. A rank never changes, so later arrivals, however important, get ahead of a
   waiting request only until its arrival number falls behind theirs: a bounded number of times.
2. The lowest rank is admitted first, and nobody in its place: a request that does not fit yet is not overtaken by
   smaller ones.
3. A preempted request keeps its rank, which brings it back to the front.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIORITY_LEAD = 64
MAX_PRIORITY = 100


class Ranked(Protocol):
    """What waits."""

    @property
    def rank(self) -> int:
        """Its place among all; none have the same."""


R = TypeVar("R", bound=Ranked)


def rank_of(arrival: int, priority: int) -> int:
    """The rank of the `arrival`-th request; requests of equal rank come in the order of arrival."""
    return (arrival - PRIORITY_LEAD * priority) * 2**32 + arrival % 2**32


class WaitingLine(Generic[R]):
    """Those that wait, the first last, so that taking it is O(1)."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: list[R] = []

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[R]:
        """In the order of admission; a copy, so that another thread may look."""
        return iter(self._line[::-1])

    def first(self) -> R:
        """Who is next; IndexError when nobody waits."""
        return self._line[-1]

    def add(self, ranked: R) -> None:
        """Takes its place by rank."""
        insort(self._line, ranked, key=lambda each: -each.rank)

    def take(self) -> R:
        """Who is next leaves the line."""
        return self._line.pop()

    def clear(self) -> None:
        """Everybody leaves."""
        self._line.clear()

    def remove(self, ranked: R) -> None:
        """Leaves the line from wherever it stands; ValueError when it does not wait."""
        self._line.remove(ranked)
