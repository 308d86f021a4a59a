"""The ring: what comes next, and where it may be read to."""

from __future__ import annotations

import pytest

from emel.tensor.ring import Ring, Slot, SlotState

LOADED, LOADING, FAILED, VACANT = SlotState.LOADED, SlotState.LOADING, SlotState.FAILED, SlotState.VACANT
UNITS = (2, 5, 7, 9)


def ring(*slots: tuple[SlotState, int], published: int | None = None, last_unit: int = -1) -> Ring:
    return Ring(UNITS, [Slot(state, unit, 0) for state, unit in slots], published, last_unit)


def test_ring_is_filled_from_the_first_unit() -> None:
    empty = ring((VACANT, -1), (VACANT, -1))
    assert empty.coming_units() == [2, 5]
    assert empty.next_load() == (2, 0)
    assert ring((LOADING, 2), (VACANT, -1)).next_load() == (5, 1)
    assert ring((LOADING, 2), (LOADING, 5)).next_load() is None


@pytest.mark.parametrize(("last", "coming"), [(2, [5, 7]), (7, [9, 2]), (9, [2, 5])])
def test_what_comes_next_goes_around_the_end(last: int, coming: list[int]) -> None:
    slots = ring((LOADED, last), (VACANT, -1), (VACANT, -1), published=0, last_unit=last)
    assert slots.coming_units() == coming
    assert slots.next_load() == (coming[0], 1)


def test_no_more_comes_than_there_are_units() -> None:
    many = Ring((1, 3), [Slot() for _ in range(5)], None, 1)
    assert many.coming_units() == [3]


def test_the_published_slot_and_what_is_needed_are_left_alone() -> None:
    assert ring((LOADED, 2), (LOADED, 5), published=0, last_unit=2).next_load() is None
    assert ring((LOADED, 2), (LOADED, 9), published=0, last_unit=2).next_load() == (5, 1)
    assert ring((LOADED, 2), (LOADING, 9), published=0, last_unit=2).next_load() is None
    assert ring((LOADED, 2), (FAILED, 5), published=0, last_unit=2).next_load() is None  # it is tried when asked for


def test_a_wanted_unit_takes_what_does_not_come_next_first() -> None:
    assert ring((LOADED, 5), (LOADED, 9), last_unit=2).free_slot() == 1
    assert ring((LOADED, 5), (LOADED, 7), (LOADING, 9), last_unit=2).free_slot() == 0
    assert ring((LOADING, 5), (LOADING, 7), last_unit=2).free_slot() is None


def test_states_are_told_by_unit() -> None:
    slots = ring((LOADED, 5), (VACANT, 7), (FAILED, 9))
    assert [slots.state_of(unit) for unit in UNITS] == [VACANT, LOADED, VACANT, FAILED]
    assert [slots.slot_of(unit) for unit in UNITS] == [None, 0, None, 2]
