"""RecurrentSlots: states of fixed size, for layers whose memory does not grow with the sequence (short convolutions).

    slot = slots.open()                # zeroed
    slots.advance(slot, n)             # a plan run took it n tokens further
    copy = slots.fork(slot)            # of another sequence, or a checkpoint to come back to
    slots.restore(slot, copy)
    slots.close_slot(slot)

A state cannot be run backwards: to forget tokens, restore a copy made before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.kernel.buffers import Memory
from emel.kernel.sizes import aligned
from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Iterable


class RecurrentSlots:
    """`n_slots` states of `state_bytes` bytes each, every one aligned for the kernels."""

    __slots__ = ("_memory", "_n_tokens", "_pool", "_view", "n_slots", "slot_bytes", "state_bytes")

    def __init__(self, n_slots: int, state_bytes: int) -> None:
        if n_slots < 1 or state_bytes < 1:
            raise CacheError(f"{n_slots} states of {state_bytes} bytes hold nothing: 1 and 1 at least")
        self.n_slots = n_slots
        self.state_bytes = state_bytes
        self.slot_bytes = aligned(state_bytes)
        self._pool = BlockPool(n_slots)
        self._n_tokens = [0] * n_slots
        self._memory = Memory(n_slots * self.slot_bytes)
        self._view = self._memory.view()

    @property
    def address(self) -> int:
        """Where slot 0 begins; slot i lies i * slot_bytes behind it."""
        return self._memory.address

    @property
    def n_bytes(self) -> int:
        """Bytes of all slots."""
        return self._memory.n_bytes

    @property
    def n_free(self) -> int:
        """Slots that can be opened."""
        return self._pool.n_free

    def can_open(self) -> bool:
        """Whether a slot is free."""
        return self._pool.can_allocate(1)

    def open(self) -> int:
        """A slot of its own with a zeroed state; CacheFullError when none is free."""
        slot = self._take()
        self._bytes(slot)[:] = bytes(self.slot_bytes)
        self._n_tokens[slot] = 0
        return slot

    def fork(self, source: int) -> int:
        """A slot of its own with a copy of another's state; CacheFullError when none is free."""
        self._check(source)
        slot = self._take()
        self.restore(slot, source)
        return slot

    def restore(self, slot: int, source: int) -> None:
        """Puts a copy of the state of `source` into `slot`."""
        self._check(slot)
        self._check(source)
        self._bytes(slot)[:] = self._bytes(source)
        self._n_tokens[slot] = self._n_tokens[source]

    def reset(self, slot: int) -> None:
        """Zeroes a state: no tokens."""
        self._check(slot)
        self._bytes(slot)[:] = bytes(self.slot_bytes)
        self._n_tokens[slot] = 0

    def advance(self, slot: int, n: int) -> None:
        """Notes that the state is `n` tokens further."""
        self._check(slot)
        if n < 0:
            raise CacheError(f"a state cannot go back {-n} tokens: restore a copy made before them")
        self._n_tokens[slot] += n

    def n_tokens(self, slot: int) -> int:
        """Tokens the state has seen."""
        self._check(slot)
        return self._n_tokens[slot]

    def view(self, slot: int) -> memoryview[int]:
        """The writable bytes of a state."""
        self._check(slot)
        return self._bytes(slot)[: self.state_bytes]

    def close_slot(self, slot: int) -> None:
        """Gives a slot back; CacheError when it is not open."""
        self._check(slot)
        self._pool.release([slot])

    def repair(self, held: Iterable[int]) -> None:
        """Makes exactly `held` open, after an interrupt in the midst of a change."""
        self._pool.recount([[slot] for slot in held])

    def close(self) -> None:
        """Gives the memory back; harmless when repeated."""
        self._view.release()
        self._memory.close()

    def _take(self) -> int:
        if not self.can_open():
            raise CacheFullError(f"all {self.n_slots} recurrent states are in use: close one first")
        return self._pool.allocate(1)[0]

    def _bytes(self, slot: int) -> memoryview[int]:
        return self._view[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def _check(self, slot: int) -> None:
        if not (0 <= slot < self.n_slots and self._pool.count(slot)):
            raise CacheError(f"recurrent state {slot} is not open")
