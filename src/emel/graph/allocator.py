"""Places storages into one arena: no two that are in use at the same operation overlap.

The smallest arena is a strip-packing problem (NP-hard), so three simple orders compete and the best wins: largest
first, earliest first into the tightest gap, and earliest first alternating between the two ends of the least arena
possible. The last one is exact for a chain, where each operation reads what the one before it wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel.graph.liveness import Interval, peak_bytes
from emel.kernel.sizes import ALIGNMENT, aligned

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
    ordered = sorted(intervals, key=lambda each: placement.offsets[each.storage])
    for index, low in enumerate(ordered):
        end = placement.offsets[low.storage] + low.n_bytes
        for high in ordered[index + 1 :]:
            if placement.offsets[high.storage] >= end:
                break
            if low.overlaps(high):
                return low, high
    return None


def _gaps(interval: Interval, placed: list[tuple[int, Interval]]) -> list[Gap]:
    """Free byte ranges for `interval` among `placed` (sorted by offset), the last one unbounded."""
    gaps: list[Gap] = []
    begin = 0
    for offset, other in placed:
        if other.overlaps(interval):
            if offset - begin >= interval.n_bytes:
                gaps.append((begin, offset))
            begin = max(begin, offset + other.n_bytes)
    gaps.append((begin, None))
    return gaps


def _lowest(gaps: list[Gap], _n_bytes: int) -> int:
    return gaps[0][0]


def _tightest(gaps: list[Gap], n_bytes: int) -> int:
    bounded = [(end - begin - n_bytes, begin) for begin, end in gaps if end is not None]
    return min(bounded)[1] if bounded else gaps[-1][0]


def _place_in_order(order: list[Interval], choose: Choice) -> Placement:
    placed: list[tuple[int, Interval]] = []
    for interval in order:
        offset = choose(_gaps(interval, placed), interval.n_bytes)
        placed.append((offset, interval))
        placed.sort(key=lambda each: each[0])
    return _placement(placed)


def _place_at_both_ends(order: list[Interval], limit: int) -> Placement | None:
    """Alternates between the lowest and the highest free bytes below `limit`; None when one does not fit."""
    placed: list[tuple[int, Interval]] = []
    is_low = True
    for interval in order:
        gaps = [(begin, limit if end is None else end) for begin, end in _gaps(interval, placed)]
        gaps = [(begin, end) for begin, end in gaps if end - begin >= interval.n_bytes]
        if not gaps:
            return None
        offset = gaps[0][0] if is_low else gaps[-1][1] - interval.n_bytes
        is_low = not is_low
        placed.append((offset, interval))
        placed.sort(key=lambda each: each[0])
    return _placement(placed)


def _placement(placed: list[tuple[int, Interval]]) -> Placement:
    offsets = {interval.storage: offset for offset, interval in placed}
    end = max((offset + interval.n_bytes for offset, interval in placed), default=0)
    return Placement(offsets, max(end, ALIGNMENT))
