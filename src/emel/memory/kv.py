"""KvCache: keys and values of many sequences in blocks of 16 tokens, sized by the context cap.

    sequence = cache.open()                       # a row of the block table
    if cache.can_reserve(sequence, n):
        first = cache.reserve(sequence, n)        # position of the first of n new tokens
    ...                                           # a plan run writes their keys and values
    cache.rollback(sequence, 2)                   # the last two are forgotten
    cache.close_sequence(sequence)

Bookkeeping alone: the bytes are written by plan runs, which read `binding`'s block table where it lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emel.graph.batch import KvBinding
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.sizes import KV_BLOCK, kv_bytes
from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Collection

    from emel.graph.ops import Heads


def blocks_for(n_tokens: int) -> int:
    """Blocks that hold `n_tokens` tokens."""
    return -(-n_tokens // KV_BLOCK)


@dataclass(slots=True)
class _Sequence:
    n_tokens: int = 0
    blocks: list[int] = field(default_factory=list)


class KvCache:
    """Room for `max_sequences` sequences of up to `n_ctx` tokens each, in `n_blocks` shared blocks.

    `n_blocks` defaults to what all of them need at full length; fewer make sequences compete. Memory is touched only
    as far as it is used. ValueError for sizes the native library cannot hold.
    """

    def __init__(
        self, *, n_kv_layers: int, heads: Heads, n_ctx: int, max_sequences: int = 1, n_blocks: int | None = None
    ) -> None:
        if n_ctx < 1 or max_sequences < 1:
            raise CacheError(f"a cache of {max_sequences} sequences of {n_ctx} tokens holds nothing: 1 and 1 at least")
        self.n_ctx = n_ctx
        self.max_sequences = max_sequences
        self.stride = blocks_for(n_ctx)
        self.pool = BlockPool(max_sequences * self.stride if n_blocks is None else n_blocks)
        self._table = int32_array(max_sequences * self.stride)
        self._sequences: list[_Sequence | None] = [None] * max_sequences
        self._memory = Memory(kv_bytes(n_kv_layers, self.pool.n_blocks, heads.n_kv_heads, heads.head_dim))

    @property
    def n_blocks(self) -> int:
        """Blocks of the cache."""
        return self.pool.n_blocks

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and values at full length."""
        return self._memory.n_bytes

    @property
    def binding(self) -> KvBinding:
        """What batches point at; valid until `close`."""
        return KvBinding(
            self._memory.address, self._memory.n_bytes, address_of(self._table), self.max_sequences, self.stride
        )

    # ---- sequences

    def can_open(self) -> bool:
        """Whether a row of the block table is free."""
        return None in self._sequences

    def open(self) -> int:
        """A new, empty sequence: the lowest free row of the block table; CacheFullError when there is none."""
        if not self.can_open():
            raise CacheFullError(f"all {self.max_sequences} sequences are in use: close one first")
        sequence = self._sequences.index(None)
        self._sequences[sequence] = _Sequence()
        return sequence

    def close_sequence(self, sequence: int) -> None:
        """Gives the sequence's blocks and row back; CacheError when it is not open."""
        state = self._state(sequence)
        self.pool.release(state.blocks)
        self._sequences[sequence] = None

    def repair(self, held: Collection[int]) -> None:
        """Makes rows and blocks agree again after an interrupt in the midst of a change: exactly `held` are open then.

        A sequence may keep more room than it asked for.
        """
        self._sequences = [
            (state or _Sequence()) if sequence in held else None for sequence, state in enumerate(self._sequences)
        ]
        self.pool.recount(state.blocks for state in self._sequences if state is not None)

    def n_tokens(self, sequence: int) -> int:
        """Tokens the sequence holds; the next one's position."""
        return self._state(sequence).n_tokens

    def room(self, sequence: int) -> int:
        """How many more tokens fit into the sequence now: its context and the free blocks allow them."""
        state = self._state(sequence)
        held = len(state.blocks) * KV_BLOCK - state.n_tokens
        return min(self.n_ctx - state.n_tokens, held + self.pool.n_free * KV_BLOCK)

    def blocks(self, sequence: int) -> tuple[int, ...]:
        """The sequence's blocks in order of positions."""
        return tuple(self._state(sequence).blocks)

    # ---- tokens

    def can_reserve(self, sequence: int, n: int) -> bool:
        """Whether `n` more tokens fit."""
        return 0 <= n <= self.room(sequence)

    def reserve(self, sequence: int, n: int) -> int:
        """Makes room for `n` more tokens; returns the position of the first. All or nothing: CacheFullError."""
        state = self._state(sequence)
        first = state.n_tokens
        n_new = blocks_for(first + n) - len(state.blocks)
        if n_new > 0 or not 0 <= n <= self.n_ctx - first:
            self._check_room(state, n, n_new)
            row = sequence * self.stride + len(state.blocks)
            added = self.pool.allocate(n_new)
            for index, block in enumerate(added, row):
                self._table[index] = block
            state.blocks += added
        state.n_tokens = first + n
        return first

    def rollback(self, sequence: int, n: int) -> None:
        """Forgets the last `n` tokens, all of them when there are fewer, and frees the blocks they leave empty."""
        if n < 0:
            raise CacheError(f"cannot roll back {n} tokens")
        state = self._state(sequence)
        state.n_tokens = max(state.n_tokens - n, 0)
        n_kept = blocks_for(state.n_tokens)
        self.pool.release(state.blocks[n_kept:])
        del state.blocks[n_kept:]

    def close(self) -> None:
        """Gives the memory back; no batch bound to it may run any more. Harmless when repeated."""
        self._memory.close()

    def _state(self, sequence: int) -> _Sequence:
        state = self._sequences[sequence] if 0 <= sequence < self.max_sequences else None
        if state is None:
            raise CacheError(f"sequence {sequence} is not open")
        return state

    def _check_room(self, state: _Sequence, n: int, n_new: int) -> None:
        if n < 0:
            raise CacheError(f"cannot reserve {n} tokens")
        if state.n_tokens + n > self.n_ctx:
            raise CacheFullError(f"{n} more tokens after {state.n_tokens} exceed the context of {self.n_ctx}")
        if not self.pool.can_allocate(n_new):
            raise CacheFullError(f"{n} more tokens need {n_new} blocks, {self.pool.n_free} of {self.n_blocks} are free")
