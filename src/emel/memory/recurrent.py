"""RecurrentSlots: states of fixed size, for layers whose memory does not grow with the sequence (short convolutions).

    slot = slots.open()                # zeroed
    slots.advance(slot, n)             # a plan run took it n tokens further
    if slots.can_retreat(slot, n):
        slots.retreat(slot, n)         # the last n are forgotten
    copy = slots.fork(slot)            # of another sequence, or a checkpoint to come back to
    slots.restore(slot, copy)
    slots.close_slot(slot)

A state knows its latest tokens one by one, so a few of them can be forgotten (StateGeometry says how many; those that
were forgotten count). To forget more, restore a copy made before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.state_ops import STATE_REACH
from emel.kernel.buffers import Memory
from emel.kernel.sizes import aligned
from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.state_ops import StateGeometry


class RecurrentSlots:
    """`n_slots` states, every one aligned for the kernels."""

    __slots__ = ("_least", "_memory", "_n_tokens", "_pool", "_view", "geometry", "n_slots", "slot_bytes")

    def __init__(self, n_slots: int, geometry: StateGeometry) -> None:
        if n_slots < 1 or geometry.n_bytes < 1:
            raise CacheError(f"{n_slots} states of {geometry.n_bytes} bytes hold nothing: 1 and 1 at least")
        self.n_slots = n_slots
        self.geometry = geometry
        self.slot_bytes = aligned(geometry.n_bytes)
        self._pool = BlockPool(n_slots)
        self._n_tokens = [0] * n_slots
        self._least = [0] * n_slots  # tokens that a state can go back to
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
        self.reset(slot)
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
        self._n_tokens[slot], self._least[slot] = self._n_tokens[source], self._least[source]

    def reset(self, slot: int) -> None:
        """Zeroes a state: no tokens."""
        self._check(slot)
        self._bytes(slot)[:] = bytes(self.slot_bytes)
        self._n_tokens[slot] = self._least[slot] = 0

    def advance(self, slot: int, n: int) -> None:
        """Notes that the state is `n` tokens further."""
        self._check(slot)
        if n < 0:
            raise CacheError(f"a state cannot be {n} tokens further")
        self._n_tokens[slot] += n
        self._least[slot] = max(self._least[slot], self._n_tokens[slot] - STATE_REACH)

    def can_retreat(self, slot: int, n: int) -> bool:
        """Whether the state can forget its last `n` tokens."""
        self._check(slot)
        return 0 <= n <= self._n_tokens[slot] - self._least[slot]

    def retreat(self, slot: int, n: int) -> None:
        """Forgets the last `n` tokens; CacheError when it cannot."""
        if not self.can_retreat(slot, n):
            raise CacheError(f"a state cannot go back {n} tokens: restore a copy made before them")
        self._n_tokens[slot] -= n

    def place(self, slot: int, n: int, least: int) -> None:
        """Says that the state is one of `n` tokens, which can go back to `least`: its `pieces` come from elsewhere."""
        self._check(slot)
        self._n_tokens[slot], self._least[slot] = n, least

    def n_tokens(self, slot: int) -> int:
        """Tokens the state has seen."""
        self._check(slot)
        return self._n_tokens[slot]

    def pieces(self, slot: int, first: int) -> Iterator[memoryview[int]]:
        """Writable products of the positions from `first` on, layer by layer, the oldest first."""
        self._check(slot)
        g, state = self.geometry, self._bytes(slot)
        for base in range(0, g.n_bytes, g.layer_bytes):
            for position in range(first, self._n_tokens[slot]):
                begin = base + position % g.n_kept * 4 * g.width
                yield state[begin : begin + 4 * g.width]

    def close_slot(self, slot: int) -> None:
        """Gives a slot back; CacheError when it is not open."""
        self._check(slot)
        self._pool.release([slot])

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
