"""Invariant: a state belongs to one owner, starts from zeros, forgets what it can and no more, and a copy is a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.state_ops import STATE_REACH, StateGeometry
from emel.memory.errors import CacheError, CacheFullError
from emel.memory.recurrent import RecurrentSlots

if TYPE_CHECKING:
    from collections.abc import Iterator


GEOMETRY = StateGeometry(n_layers=2, width=1, n_past=3)


@pytest.fixture
def slots() -> Iterator[RecurrentSlots]:
    slots = RecurrentSlots(3, GEOMETRY)
    yield slots
    slots.close()


def write(slots: RecurrentSlots, slot: int, letters: bytes) -> None:
    """The state is so many tokens further: four letters a product, in upper case in the second layer."""
    first = slots.n_tokens(slot)
    slots.advance(slot, len(letters))
    for index, piece in enumerate(slots.pieces(slot, first)):
        letter = letters[index % len(letters)]
        piece[:] = bytes([letter if index < len(letters) else letter - 32]) * 4


def read(slots: RecurrentSlots, slot: int, first: int) -> bytes:
    return b"".join(bytes(piece)[:1] for piece in slots.pieces(slot, first))


def test_slots_are_aligned_for_the_kernels(slots: RecurrentSlots) -> None:
    assert (GEOMETRY.n_kept, GEOMETRY.layer_bytes) == (19, 128)
    assert (slots.slot_bytes, slots.n_bytes, slots.address % 64) == (256, 768, 0)


def test_slot_starts_from_zeros_whoever_had_it(slots: RecurrentSlots) -> None:
    slot = slots.open()
    write(slots, slot, b"xxxxx")
    slots.close_slot(slot)
    assert slots.open() == slot
    assert slots.n_tokens(slot) == 0
    slots.place(slot, 5, 5)
    assert read(slots, slot, 0) == bytes(10)


def test_slot_copies_are_independent(slots: RecurrentSlots) -> None:
    slot = slots.open()
    write(slots, slot, b"abcdefghijklmnopqrst")
    copy = slots.fork(slot)
    write(slots, slot, b"uvw")
    assert (read(slots, copy, 15), slots.n_tokens(copy)) == (b"pqrstPQRST", 20)
    assert read(slots, slot, 18) == b"stuvwSTUVW"
    slots.restore(slot, copy)
    assert (read(slots, slot, 15), slots.n_tokens(slot)) == (b"pqrstPQRST", 20)
    slots.reset(slot)
    assert (slots.n_tokens(slot), slots.n_tokens(copy)) == (0, 20)


def test_slot_forgets_its_latest_tokens(slots: RecurrentSlots) -> None:
    slot = slots.open()
    write(slots, slot, b"abcdefghijklmnopqrstuvwxyz")
    assert [slots.can_retreat(slot, n) for n in (-1, 0, STATE_REACH, STATE_REACH + 1)] == [False, True, True, False]
    slots.retreat(slot, 6)
    assert (slots.n_tokens(slot), read(slots, slot, 17)) == (20, b"rstRST")
    assert [slots.can_retreat(slot, n) for n in (STATE_REACH - 6, STATE_REACH - 5)] == [True, False]
    write(slots, slot, b"zz")
    assert read(slots, slot, 17) == b"rstzzRSTZZ"
    copy = slots.fork(slot)
    for each in (slot, copy):  # what was forgotten took the place of what is older
        assert [slots.can_retreat(each, n) for n in (STATE_REACH - 4, STATE_REACH - 3)] == [True, False]
    with pytest.raises(CacheError, match="a state cannot go back 13 tokens: restore a copy made before them"):
        slots.retreat(slot, STATE_REACH - 3)
    assert slots.n_tokens(slot) == 22


def test_short_state_goes_back_to_its_start(slots: RecurrentSlots) -> None:
    slot = slots.open()
    write(slots, slot, b"abc")
    assert [slots.can_retreat(slot, n) for n in (3, 4)] == [True, False]
    slots.retreat(slot, 3)
    assert slots.n_tokens(slot) == 0


def test_state_from_elsewhere_goes_back_as_far_as_it_says(slots: RecurrentSlots) -> None:
    slot = slots.open()
    slots.place(slot, 40, 32)
    assert [slots.can_retreat(slot, n) for n in (8, 9)] == [True, False]
    assert len(list(slots.pieces(slot, 29))) == 2 * 11


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
    for use in (slots.fork, slots.n_tokens, slots.reset, slots.close_slot):
        with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
            use(slot)
    for pair in ((slot, 0), (0, slot)):
        with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
            slots.restore(*pair)
    for count in (slots.advance, slots.can_retreat, slots.retreat, lambda slot, n: list(slots.pieces(slot, n))):
        with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
            count(slot, 0)
    with pytest.raises(CacheError, match=f"recurrent state {slot} is not open"):
        slots.place(slot, 0, 0)
    assert slots.n_free == 2


def test_slots_do_not_advance_backwards(slots: RecurrentSlots) -> None:
    slot = slots.open()
    with pytest.raises(CacheError, match="a state cannot be -2 tokens further"):
        slots.advance(slot, -2)
    assert slots.n_tokens(slot) == 0


@pytest.mark.parametrize(("n_slots", "n_layers"), [(0, 1), (1, 0)])
def test_slots_of_nothing_are_refused(n_slots: int, n_layers: int) -> None:
    with pytest.raises(CacheError, match="hold nothing: 1 and 1 at least"):
        RecurrentSlots(n_slots, StateGeometry(n_layers, 1, 1))
