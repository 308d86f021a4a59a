"""Places storages into one arena: no two that are in use at the same operation overlap.

The smallest arena is a strip-packing problem (NP-hard), so three simple orders compete and the best wins: largest
first, earliest first into the tightest gap, and earliest first alternating between the two ends of the least arena
possible. The last one is exact for a chain, where each operation reads what the one before it wrote.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from emel.graph.liveness import Interval, peak_bytes
from emel.kernel.sizes import ALIGNMENT, aligned
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Gap = tuple[int, int | None]  # [begin, end) of free bytes, None: unbounded
    Choice = Callable[[list[Gap], int], int]


@dataclass(frozen=True, slots=True)
class Placement:
    """Storage -> byte offset in an arena of `n_bytes`."""

    offsets: dict[int, int]
    n_bytes: int


def place(intervals: Iterable[Interval]) -> Placement:
    """A placement with 64-byte aligned offsets; never larger than all sizes together."""
    rounded = [Interval(each.storage, each.first, each.last, aligned(max(each.n_bytes, 1))) for each in intervals]
    by_size = sorted(rounded, key=lambda each: (-each.n_bytes, each.first, each.storage))
    by_time = sorted(rounded, key=lambda each: (each.first, -each.n_bytes, each.storage))
    least = peak_bytes(rounded)
    best = _place_in_order(by_size, _lowest)
    if best.n_bytes > least:
        best = min(best, _place_in_order(by_time, _tightest), key=lambda each: each.n_bytes)
    if best.n_bytes > least:
        best = _place_at_both_ends(by_time, least) or best
    return best


def find_overlap(intervals: list[Interval], placement: Placement) -> tuple[Interval, Interval] | None:
    """Two storages that are in use at once and share bytes, if there are any."""
    live: dict[int, list[Interval]] = {}
    for interval in sorted(intervals, key=lambda each: placement.offsets[each.storage]):
        for at in range(interval.first, interval.last + 1):
            live.setdefault(at, []).append(interval)
    for together in live.values():  # in order of offsets, so that neighbours would overlap first
        for low, high in pairwise(together):
            if placement.offsets[low.storage] + low.n_bytes > placement.offsets[high.storage]:
                return low, high
    return None


class _Arena:
    """What is placed so far, by operation: a storage has few neighbours in time, whatever the length of the graph."""

    def __init__(self) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}  # operation -> (begin, end) of the bytes in use
        self._offsets: dict[int, int] = {}
        self._n_bytes = ALIGNMENT

    def gaps(self, interval: Interval) -> list[Gap]:
        """Free byte ranges that `interval` fits into, ascending; the last one is unbounded."""
        empty: list[tuple[int, int]] = []
        taken = {span for at in range(interval.first, interval.last + 1) for span in self._spans.get(at, empty)}
        gaps: list[Gap] = []
        begin = 0
        for start, end in sorted(taken):
            if start - begin >= interval.n_bytes:
                gaps.append((begin, start))
            begin = max(begin, end)
        gaps.append((begin, None))
        return gaps

    def put(self, interval: Interval, offset: int) -> None:
        """Places `interval`."""
        end = offset + interval.n_bytes
        for at in range(interval.first, interval.last + 1):
            self._spans.setdefault(at, []).append((offset, end))
        self._offsets[interval.storage] = offset
        self._n_bytes = max(self._n_bytes, end)

    def placement(self) -> Placement:
        """Where everything is."""
        return Placement(self._offsets, self._n_bytes)


def _lowest(gaps: list[Gap], _n_bytes: int) -> int:
    return gaps[0][0]


def _tightest(gaps: list[Gap], n_bytes: int) -> int:
    bounded = [(end - begin - n_bytes, begin) for begin, end in gaps if end is not None]
    return min(bounded)[1] if bounded else gaps[-1][0]


def _place_in_order(order: list[Interval], choose: Choice) -> Placement:
    arena = _Arena()
    for interval in order:
        arena.put(interval, choose(arena.gaps(interval), interval.n_bytes))
    return arena.placement()


def _place_at_both_ends(order: list[Interval], limit: int) -> Placement | None:
    """Alternates between the lowest and the highest free bytes below `limit`; None when one does not fit."""
    arena, is_low = _Arena(), True
    for interval in order:
        gaps = [(begin, limit if end is None else end) for begin, end in arena.gaps(interval)]
        if gaps[-1][1] - gaps[-1][0] < interval.n_bytes:  # the last one, which was unbounded
            gaps.pop()
        if not gaps:
            return None
        arena.put(interval, gaps[0][0] if is_low else gaps[-1][1] - interval.n_bytes)
        is_low = not is_low
    return arena.placement()
