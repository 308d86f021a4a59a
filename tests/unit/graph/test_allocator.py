"""Invariant: no two storages that are in use at one operation share a byte; the arena is as small as it can be."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.graph.allocator import Placement, find_overlap, place
from emel.graph.assembler import assemble
from emel.graph.capacity import Capacity
from emel.graph.liveness import Interval, live_intervals, peak_bytes
from emel.kernel.sizes import aligned
from unit.graph.tiny import Tiny

SIZES = st.integers(1, 5000)


@st.composite
def interval_lists(draw: st.DrawFn) -> list[Interval]:
    n = draw(st.integers(1, 40))
    intervals = []
    for storage in range(n):
        first = draw(st.integers(0, 30))
        intervals.append(Interval(storage, first, first + draw(st.integers(0, 12)), draw(SIZES)))
    return intervals


@given(interval_lists())
def test_place_never_overlaps_what_is_live_at_once(intervals: list[Interval]) -> None:
    placement = place(intervals)
    for index, one in enumerate(intervals):
        begin = placement.offsets[one.storage]
        assert begin % 64 == 0
        assert begin + one.n_bytes <= placement.n_bytes
        for other in intervals[index + 1 :]:
            start = placement.offsets[other.storage]
            if one.first <= other.last and other.first <= one.last:
                assert begin + one.n_bytes <= start or start + other.n_bytes <= begin
    assert find_overlap(intervals, placement) is None


@given(interval_lists())
def test_place_needs_at_least_the_peak_and_at_most_the_sum(intervals: list[Interval]) -> None:
    n_bytes = place(intervals).n_bytes
    rounded = [Interval(each.storage, each.first, each.last, aligned(each.n_bytes)) for each in intervals]
    assert peak_bytes(rounded) <= n_bytes <= sum(each.n_bytes for each in rounded)


@given(st.lists(SIZES, min_size=1, max_size=30))
def test_place_is_exact_on_chains(sizes: list[int]) -> None:
    chain = [Interval(i, i, i + 1, n_bytes) for i, n_bytes in enumerate(sizes)]
    rounded = [aligned(each) for each in sizes]
    pairs = itertools.pairwise(rounded)
    assert place(chain).n_bytes == max([*rounded, *(a + b for a, b in pairs)])


@given(st.permutations(range(12)))
def test_place_does_not_depend_on_the_order_given(order: list[int]) -> None:
    intervals = [Interval(i, i // 2, i // 2 + i % 4, 100 + 37 * i) for i in range(12)]
    assert place([intervals[i] for i in order]) == place(intervals)


@pytest.mark.parametrize("tiny", [Tiny(), Tiny(n_layers=3, n_heads=4, d_ff=256), Tiny(gathers=False)])
def test_place_gives_decoders_the_smallest_arena(tiny: Tiny) -> None:
    assembly = assemble(tiny.build, Capacity(32, 1, 1, 8))
    intervals = live_intervals(assembly.graph, assembly.n_bytes)
    rounded = [Interval(each.storage, each.first, each.last, aligned(each.n_bytes)) for each in intervals]
    assert assembly.placement.n_bytes == peak_bytes(rounded)


def test_place_of_nothing_is_a_small_arena() -> None:
    assert place([]) == Placement({}, 64)


def test_find_overlap_names_the_two() -> None:
    one, two, three = Interval(0, 0, 2, 64), Interval(1, 2, 3, 64), Interval(2, 3, 4, 64)
    assert find_overlap([one, two, three], Placement({0: 0, 1: 32, 2: 128}, 256)) == (one, two)
    assert find_overlap([one, two, three], Placement({0: 0, 1: 64, 2: 0}, 128)) is None
