"""HybridCache: a KV cache and a recurrent state for each of its sequences. Every operation does both or neither.

1. Blocks can forget any tokens, states only their latest (emel.memory.recurrent). `checkpoint` copies a sequence's
   state as it was at the border of its last published block; a prompt is found as far as the last block that has a
   checkpoint, and a long rollback leads to a checkpoint or to the start.
2. Checkpoints take the slots that sequences leave. The least recently used one makes room; one whose block leaves the
   store goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.batch import StateBinding
from emel.graph.state_ops import STATE_REACH
from emel.kernel.buffers import address_of, int32_array
from emel.kernel.sizes import KV_BLOCK
from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.memory.kv import KvCache
    from emel.memory.prefix import StoredBlock
    from emel.memory.recurrent import RecurrentSlots


class HybridCache:
    """Both memories of a model whose layers are of both kinds; it closes both. CacheError with too few slots."""

    def __init__(self, kv: KvCache, slots: RecurrentSlots) -> None:
        if slots.n_slots < kv.max_sequences:
            raise CacheError(f"{slots.n_slots} recurrent states are too few for {kv.max_sequences} sequences")
        self.kv = kv
        self.slots = slots
        self._slot_of: dict[int, int] = {}
        self._rows = int32_array(kv.max_sequences)  # the slot of each row, where plan runs read it
        self._rows_address = address_of(self._rows)
        self._checkpoints: dict[StoredBlock, int] = {}  # the least recently used first
        self._moving: dict[int, StoredBlock] = {}  # the checkpoint of a sequence that the next one replaces
        kv.prefixes.on_drop = self._drop

    @property
    def n_ctx(self) -> int:
        """Tokens a sequence may have."""
        return self.kv.n_ctx

    @property
    def n_blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv.n_blocks

    @property
    def reach(self) -> int:
        """How many of its latest tokens a sequence can forget at any time."""
        return STATE_REACH

    @property
    def state_binding(self) -> StateBinding:
        """What batches point at besides `kv.binding`; valid until `close`."""
        return StateBinding(self.slots.address, self.slots.n_bytes, self._rows_address, self.kv.max_sequences)

    def n_tokens(self, sequence: int) -> int:
        """Tokens the sequence holds; the next one's position."""
        return self.kv.n_tokens(sequence)

    def free_blocks(self) -> int:
        """As KvCache.free_blocks."""
        return self.kv.free_blocks()

    def slot(self, sequence: int) -> int:
        """The slot of a sequence's state."""
        self.kv.n_tokens(sequence)  # refuses one that is not open
        return self._slot_of[sequence]

    # ---- sequences

    def can_open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True, n_spare: int = 0) -> bool:
        """As KvCache.can_open_with_prefix, as far as the last checkpoint."""
        return self.kv.can_open_on(self._find(token_ids) if reuse else [], len(token_ids), n_spare)

    def can_open(self) -> bool:
        """Whether a sequence can be opened: each has a slot, so blocks' rows decide."""
        return self.kv.can_open()

    def open(self) -> int:
        """A new, empty sequence; CacheFullError."""
        return self._open_on([], is_private=False)

    def fork(self, parent: int) -> int:
        """A sequence with the same tokens: blocks shared, the state copied; CacheFullError."""
        source = self.slot(parent)
        child = self.kv.fork(parent)
        try:
            self._make_room()
            self._give_slot(child, self.slots.fork(source))
        except BaseException:
            self.kv.close_sequence(child)
            raise
        return child

    def close_sequence(self, sequence: int) -> None:
        """Gives blocks, row and state back; CacheError when it is not open."""
        slot = self.slot(sequence)
        self.kv.close_sequence(sequence)
        del self._slot_of[sequence]
        self._moving.pop(sequence, None)
        self.slots.close_slot(slot)

    # ---- tokens

    def can_reserve_all(self, additions: Sequence[tuple[int, int]]) -> bool:
        """As KvCache.can_reserve_all: a state has room for any number of tokens."""
        return self.kv.can_reserve_all(additions)

    def reserve_all(self, additions: Sequence[tuple[int, int]]) -> list[int]:
        """As KvCache.reserve_all; the states count as so many tokens further."""
        slots = [self.slot(sequence) for sequence, _ in additions]
        firsts = self.kv.reserve_all(additions)
        for slot, (_, n) in zip(slots, additions, strict=True):
            self.slots.advance(slot, n)
        return firsts

    def advance(self, additions: Sequence[tuple[int, int]]) -> int:
        """As KvCache.advance; the states count as a token further."""
        n_more = self.kv.advance(additions)
        for sequence, n in additions:
            self.slots.advance(self._slot_of[sequence], n)
        return n_more

    def can_rollback(self, sequence: int, n: int) -> bool:
        """Whether the state before the last `n` tokens is known: within reach, the start, or a checkpoint."""
        n_kept = self.kv.n_tokens(sequence) - n
        if n < 0 or n_kept <= 0:
            return n >= 0
        return self.slots.can_retreat(self.slot(sequence), n) or self._checkpoint_at(sequence, n_kept) is not None

    def rollback(self, sequence: int, n: int) -> None:
        """Forgets the last `n` tokens; CacheError, and nothing forgotten, out of reach where no checkpoint is."""
        if not self.can_rollback(sequence, n):
            n_kept = self.kv.n_tokens(sequence) - n
            raise CacheError(f"sequence {sequence} has no checkpoint at {n_kept} tokens, which are out of reach")
        slot, n_kept = self.slot(sequence), max(self.kv.n_tokens(sequence) - n, 0)
        checkpoint = self._checkpoint_at(sequence, n_kept)
        self.kv.rollback(sequence, n)
        if self.slots.can_retreat(slot, n):
            self.slots.retreat(slot, n)
        elif checkpoint is not None:
            self._touch(checkpoint)
            self.slots.restore(slot, self._checkpoints[checkpoint])
        else:
            self.slots.reset(slot)

    # ---- prefixes

    def publish(self, sequence: int, token_ids: Sequence[int]) -> int:
        """As KvCache.publish; what is published can be reused up to a checkpoint.

        One is made at the end of the last block that was new. While the sequence grows block by block, as an answer
        does, each takes the place of the one before.
        """
        n_new = self.kv.publish(sequence, token_ids)
        if n_new and self.can_checkpoint(sequence):
            self.checkpoint(sequence)
            stored, before = self._last_stored(sequence), self._moving.pop(sequence, None)
            if before is not None and before is not stored:
                self._drop(before)
            if n_new == 1 and stored is not None:
                self._moving[sequence] = stored
        return n_new

    def can_checkpoint(self, sequence: int) -> bool:
        """Whether the state can go back to the end of a published block, and a slot can be had for it."""
        return self._last_stored(sequence) is not None and (self.slots.can_open() or bool(self._checkpoints))

    def checkpoint(self, sequence: int) -> None:
        """Keeps the sequence's state as it was at its last block border; CacheError where that is not published or out
        of reach, CacheFullError without a slot."""
        stored = self._last_stored(sequence)
        if stored is None:
            n = self.kv.n_tokens(sequence)
            raise CacheError(
                f"sequence {sequence} has {n} tokens: a checkpoint needs a published full block within reach"
            )
        if stored in self._checkpoints:
            self._touch(stored)
            return
        if not self.can_checkpoint(sequence):
            raise CacheFullError(f"all {self.slots.n_slots} recurrent states are in use by sequences")
        self._make_room()
        copy = self._checkpoints[stored] = self.slots.fork(self.slot(sequence))
        self.slots.retreat(copy, self.kv.n_tokens(sequence) % KV_BLOCK)

    def match(self, token_ids: Sequence[int]) -> int:
        """How many tokens of a prompt need not be computed. Changes nothing."""
        return len(self._find(token_ids)) * KV_BLOCK

    def open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True) -> tuple[int, int]:
        """As KvCache.open_with_prefix, as far as the last checkpoint."""
        self.kv.check_prompt(token_ids)
        found = self._find(token_ids) if reuse else []
        sequence = self._open_on(found, is_private=not reuse)
        if reuse:
            self.kv.counters.add_lookup(len(found) * KV_BLOCK)
        return sequence, len(found) * KV_BLOCK

    def close(self) -> None:
        """Gives all memory back; harmless when repeated."""
        self.kv.close()
        self.slots.close()

    # ---- inside

    def _find(self, token_ids: Sequence[int]) -> list[StoredBlock]:
        found = self.kv.find(token_ids)
        while found and found[-1] not in self._checkpoints:
            found.pop()
        return found

    def _open_on(self, chain: Sequence[StoredBlock], *, is_private: bool) -> int:
        sequence = self.kv.open_on(chain, is_private=is_private)
        try:
            self._give_slot(sequence, self._copy_of(chain[-1]) if chain else self._fresh())
        except BaseException:
            self.kv.close_sequence(sequence)
            raise
        return sequence

    def _give_slot(self, sequence: int, slot: int) -> None:
        self._slot_of[sequence] = slot
        self._rows[sequence] = slot

    def _fresh(self) -> int:
        self._make_room()
        return self.slots.open()

    def _copy_of(self, stored: StoredBlock) -> int:
        """A slot with a checkpoint's state: the checkpoint's own when it is the only one that can make room."""
        self._touch(stored)
        if not self.slots.can_open() and len(self._checkpoints) == 1:
            return self._checkpoints.pop(stored)
        self._make_room()
        return self.slots.fork(self._checkpoints[stored])

    def _make_room(self) -> None:
        if not self.slots.can_open() and self._checkpoints:
            self._drop(next(iter(self._checkpoints)))

    def _touch(self, stored: StoredBlock) -> None:
        self._checkpoints[stored] = self._checkpoints.pop(stored)

    def _drop(self, stored: StoredBlock) -> None:
        slot = self._checkpoints.pop(stored, None)
        if slot is not None:
            self.slots.close_slot(slot)

    def _last_stored(self, sequence: int) -> StoredBlock | None:
        """What is stored of the block that ends at the last border, if the state can go back there."""
        n_tokens = self.kv.n_tokens(sequence)
        n_behind = n_tokens % KV_BLOCK
        is_known = self.slots.can_retreat(self.slot(sequence), n_behind)
        return self._stored_at(sequence, n_tokens - n_behind) if is_known else None

    def _checkpoint_at(self, sequence: int, n_tokens: int) -> StoredBlock | None:
        stored = self._stored_at(sequence, n_tokens)
        return stored if stored in self._checkpoints else None

    def _stored_at(self, sequence: int, n_tokens: int) -> StoredBlock | None:
        """What is stored of the block of a sequence that ends at a border after so many tokens."""
        if n_tokens <= 0 or n_tokens % KV_BLOCK:
            return None
        return self.kv.prefixes.stored(self.kv.blocks(sequence)[n_tokens // KV_BLOCK - 1])
