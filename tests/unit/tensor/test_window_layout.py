"""What stays, what is streamed, in how many slots: for every budget the most that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.tensor.types import TensorType
from emel.tensor.window_layout import (
    Extent,
    Unit,
    WindowError,
    lay_out,
    places,
    smallest_budget,
    unit_bytes,
)


def unit(*sizes: int) -> Unit:
    return tuple(Extent(f"m{at}", 64 * at, 34, 1, 32, TensorType.Q8_0, size) for at, size in enumerate(sizes))


@given(
    sizes=st.lists(st.integers(1, 50_000), min_size=1, max_size=40),
    share=st.floats(0.0, 1.2),
    n_slots=st.one_of(st.none(), st.integers(2, 8)),
)
def test_layout_stays_within_its_budget_or_names_the_smallest(
    sizes: list[int], share: float, n_slots: int | None
) -> None:
    units = [unit(size) for size in sizes]
    budget = int(sum(map(unit_bytes, units)) * share)
    least = smallest_budget(units, n_slots)
    if budget < least:
        with pytest.raises(WindowError, match=f"{least} are the least$"):
            lay_out(units, budget, n_slots)
        return
    layout = lay_out(units, budget, n_slots)
    assert layout.resident_bytes + layout.arena_bytes <= budget
    assert sorted((*layout.resident, *layout.streamed)) == list(range(len(units)))
    assert layout.is_resident == (not layout.streamed) == (layout.n_slots == 0)
    if layout.streamed:
        assert len(layout.streamed) > layout.n_slots >= 2
        assert layout.slot_bytes >= max(unit_bytes(units[index]) for index in layout.streamed)


@pytest.mark.parametrize("n_slots", [2, 3, 8])
def test_smallest_budget_works_and_one_byte_less_does_not(n_slots: int) -> None:
    units = [unit(5000, 3000)] * 20
    least = smallest_budget(units, n_slots)
    assert len(lay_out(units, least, n_slots).streamed) == 20
    with pytest.raises(
        WindowError,
        match=rf"^{least - 1} bytes are too few for 20 units of up to 8064 bytes in {n_slots} slots: {least} are",
    ):
        lay_out(units, least - 1, n_slots)


def test_what_is_read_falls_with_every_unit_that_fits() -> None:
    units = [unit(4096)] * 30
    read = [lay_out(units, 2 * 4096 + n * 4096, 2).streamed_file_bytes for n in range(28)]
    assert read == [34 * (30 - n) for n in range(28)]


@pytest.mark.parametrize(("n_units", "n_resident"), [(20, 0), (20, 8), (40, 0), (100, 20), (6, 3)])
def test_more_than_two_slots_are_taken_where_they_read_little_more(n_units: int, n_resident: int) -> None:
    units = [unit(8064)] * n_units
    budget = 2 * 8192 + n_resident * 8064
    least, chosen = lay_out(units, budget, 2), lay_out(units, budget)
    assert least.streamed_file_bytes <= chosen.streamed_file_bytes <= least.streamed_file_bytes * 9 // 8 * 33 // 32
    if 2 < chosen.n_slots < 8:
        third, more = lay_out(units, budget, 3), lay_out(units, budget, chosen.n_slots + 1)
        assert chosen.streamed_file_bytes <= third.streamed_file_bytes * 33 // 32 < more.streamed_file_bytes


def test_room_that_is_left_keeps_smaller_units() -> None:
    layout = lay_out([unit(8192), unit(4096)] * 6, 2 * 8192 + 8192 + 4096, 2)
    assert (len(layout.streamed), layout.resident_bytes) == (10, 8192 + 4096)


def test_streamed_units_are_spread_among_the_resident_ones() -> None:
    layout = lay_out([unit(4096)] * 12, 8 * 4096, 2)
    assert layout.streamed == (1, 3, 5, 7, 9, 11)


def test_places_are_aligned_and_in_order() -> None:
    assert [(place.offset, place.n_bytes) for place in places(unit(100, 64, 1))] == [(0, 100), (128, 64), (192, 1)]


def test_layout_refuses_counts_out_of_range() -> None:
    one = unit(10)
    for n_slots in (1, 9):
        with pytest.raises(WindowError, match=rf"^a window of {n_slots} slots: 2 to 8 are allowed$"):
            lay_out([one], 0, n_slots)
    with pytest.raises(WindowError, match=r"^a window over 0 units: 1 to 1024 are allowed$"):
        lay_out([], 0)
    with pytest.raises(WindowError, match=r"^a window over 1025 units: 1 to 1024 are allowed$"):
        lay_out([one] * 1025, 0)
    with pytest.raises(WindowError, match=r"^unit 1 of a window has 65 matrices: 1 to 64 are allowed$"):
        lay_out([one, one * 65], 0)
    with pytest.raises(WindowError, match=r"^unit 0 of a window has 0 matrices"):
        lay_out([()], 0)
    with pytest.raises(WindowError, match="'m0' has no place in a file or no bytes"):
        lay_out([unit(0)], 0)
