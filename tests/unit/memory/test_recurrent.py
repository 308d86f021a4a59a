"""Invariant: a state belongs to one owner, starts from zeros, and a copy is a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.memory.errors import CacheError, CacheFullError
from emel.memory.recurrent import RecurrentSlots

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def slots() -> Iterator[RecurrentSlots]:
    slots = RecurrentSlots(3, 100)
    yield slots
    slots.close()


def test_slots_are_aligned_for_the_kernels(slots: RecurrentSlots) -> None:
    assert (slots.slot_bytes, slots.n_bytes, slots.address % 64) == (128, 384, 0)
    assert len(slots.view(slots.open())) == 100


def test_slot_starts_from_zeros_whoever_had_it(slots: RecurrentSlots) -> None:
    slot = slots.open()
    slots.view(slot)[:] = b"x" * 100
    slots.advance(slot, 5)
    slots.close_slot(slot)
    assert slots.open() == slot
    assert (bytes(slots.view(slot)), slots.n_tokens(slot)) == (bytes(100), 0)


def test_slot_copies_are_independent(slots: RecurrentSlots) -> None:
    slot = slots.open()
    slots.view(slot)[:] = b"a" * 100
    slots.advance(slot, 16)
    copy = slots.fork(slot)
    slots.view(slot)[:] = b"b" * 100
    slots.advance(slot, 1)
    assert (bytes(slots.view(copy)), slots.n_tokens(copy)) == (b"a" * 100, 16)
    slots.restore(slot, copy)
    assert (bytes(slots.view(slot)), slots.n_tokens(slot)) == (b"a" * 100, 16)
    slots.reset(slot)
    assert (bytes(slots.view(slot)), slots.n_tokens(slot), slots.n_tokens(copy)) == (bytes(100), 0, 16)


def test_slots_run_out_without_harm(slots: RecurrentSlots) -> None:
    opened = [slots.open() for _ in range(3)]
    assert (opened, slots.n_free, slots.can_open()) == ([0, 1, 2], 0, False)
    for take in (slots.open, lambda: slots.fork(0)):
        with pytest.raises(CacheFullError, match="all 3 recurrent states are in use: close one first"):
            take()
    slots.close_slot(1)
    assert slots.fork(0) == 1


@pytest.mark.parametrize("slot", [-1, 1, 3])
def test_slots_refuse_what_is_not_open(slots: RecurrentSlots, slot: int) -> None:
    slots.open()
    for use in (slots.fork, slots.view, slots.n_tokens, slots.reset, slots.close_slot):
        with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
            use(slot)
    for pair in ((slot, 0), (0, slot)):
        with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
            slots.restore(*pair)
    assert slots.n_free == 2


def test_slots_do_not_go_back(slots: RecurrentSlots) -> None:
    slot = slots.open()
    with pytest.raises(CacheError, match="a state cannot go back 2 tokens: restore a copy"):
        slots.advance(slot, -2)
    assert slots.n_tokens(slot) == 0


def test_slots_are_repaired_to_what_is_held(slots: RecurrentSlots) -> None:
    for _ in range(3):
        slots.open()
    slots.repair([1])
    assert slots.n_free == 2
    assert slots.open() == 0


@pytest.mark.parametrize(("n_slots", "state_bytes"), [(0, 1), (1, 0)])
def test_slots_of_nothing_are_refused(n_slots: int, state_bytes: int) -> None:
    with pytest.raises(CacheError, match="hold nothing: 1 and 1 at least"):
        RecurrentSlots(n_slots, state_bytes)
