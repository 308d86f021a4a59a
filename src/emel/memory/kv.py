"""KvCache: keys and values of many sequences in blocks of 16 tokens, sized by the context cap.

    sequence = cache.open()                       # a row of the block table
    if cache.can_reserve_all([(sequence, n)]):
        first = cache.reserve(sequence, n)        # position of the first of n new tokens
    ...                                           # a plan run writes their keys and values
    cache.rollback(sequence, 2)                   # the last two are forgotten
    twin = cache.fork(sequence)                   # shares all blocks; who writes a shared one first gets a copy
    cache.publish(sequence, token_ids)            # its full blocks can be found by their tokens, also once it is closed
    cache.close_sequence(sequence)
    sequence, n_cached = cache.open_with_prefix(prompt_ids)

Bookkeeping alone: the bytes are written by plan runs, which read `binding`'s block table where it lies. Between two
runs any operation is allowed, one thread at a time; during a run none but questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.batch import KvBinding
from emel.kernel.sizes import KV_BLOCK, KV_TYPES
from emel.memory.blocks import BlockPool
from emel.memory.errors import CacheError, CacheFullError
from emel.memory.prefix import PrefixCounters, PrefixStore, StoredBlock, full_block_ids
from emel.memory.sequences import SequenceState, blocks_for, blocks_wanted
from emel.memory.storage import KvGeometry, KvStorage
from emel.memory.table import BlockTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emel.graph.ops import Heads
    from emel.tensor.types import TensorType

__all__ = ["KvCache", "blocks_for"]


class KvCache:
    """Room for `max_sequences` sequences of up to `n_ctx` tokens each, in `n_blocks` shared blocks.

    `n_blocks` defaults to what all of them need at full length; fewer make sequences compete. `prefix_bytes` bounds
    what published blocks of no open sequence may take (None: all that is free). `kv_type`: what its numbers are.
    Memory is touched only as far as it is used. ValueError for sizes the native library cannot hold.
    """

    def __init__(
        self,
        *,
        n_kv_layers: int,
        heads: Heads,
        n_ctx: int,
        max_sequences: int = 1,
        n_blocks: int | None = None,
        prefix_bytes: int | None = None,
        kv_type: TensorType = KV_TYPES[0],
    ) -> None:
        if n_ctx < 1 or max_sequences < 1:
            raise CacheError(f"a cache of {max_sequences} sequences of {n_ctx} tokens holds nothing: 1 and 1 at least")
        self.n_ctx = n_ctx
        self.max_sequences = max_sequences
        self.stride = blocks_for(n_ctx)
        self.pool = BlockPool(max_sequences * self.stride if n_blocks is None else n_blocks)
        self.geometry = KvGeometry(n_kv_layers, heads.n_kv_heads, heads.head_dim, kv_type)
        self.storage = KvStorage(self.geometry, self.pool.n_blocks)
        self.prefixes = PrefixStore(
            self.pool, None if prefix_bytes is None else prefix_bytes // self.geometry.bytes_per_block
        )
        self._table = BlockTable(max_sequences, self.stride)
        self._sequences: list[SequenceState | None] = [None] * max_sequences

    @property
    def n_blocks(self) -> int:
        """Blocks of the cache."""
        return self.pool.n_blocks

    @property
    def n_bytes(self) -> int:
        """Bytes of keys and values at full length."""
        return self.storage.n_bytes

    @property
    def binding(self) -> KvBinding:
        """What batches point at; valid until `close`."""
        return KvBinding(
            self.storage.address,
            self.n_bytes,
            self._table.address,
            self.max_sequences,
            self.stride,
            self.geometry.kv_type,
        )

    @property
    def counters(self) -> PrefixCounters:
        """What prefix reuse has done so far."""
        return self.prefixes.counters

    @property
    def n_blocks_in_use(self) -> int:
        """Blocks that open sequences own."""
        return self.n_blocks - self.free_blocks()

    @property
    def reach(self) -> int:
        """How many of its latest tokens a sequence can forget at any time: all; see HybridCache."""
        return self.n_ctx

    # ---- sequences

    def can_open(self) -> bool:
        """Whether a row of the block table is free."""
        return None in self._sequences

    def open(self) -> int:
        """A new, empty sequence: the lowest free row of the block table; CacheFullError when there is none."""
        return self._open(SequenceState())

    def fork(self, parent: int) -> int:
        """A new sequence with the same tokens, sharing all blocks; CacheFullError when no row is free."""
        state = self._state(parent)
        return self._open(SequenceState(state.n_tokens, state.blocks.copy(), state.stored.copy(), state.is_private))

    def close_sequence(self, sequence: int) -> None:
        """Gives the sequence's blocks and row back; CacheError when it is not open."""
        state = self._state(sequence)
        self._sequences[sequence] = None
        self.prefixes.release(state.blocks)

    def n_tokens(self, sequence: int) -> int:
        """Tokens the sequence holds; the next one's position."""
        return self._state(sequence).n_tokens

    def blocks(self, sequence: int) -> tuple[int, ...]:
        """The sequence's blocks in order of positions."""
        return tuple(self._state(sequence).blocks)

    # ---- tokens

    def free_blocks(self) -> int:
        """Blocks that can be had: free ones, and stored ones that no open sequence uses."""
        return self.prefixes.n_available

    def reserve(self, sequence: int, n: int) -> int:
        """Makes room for `n` more tokens; returns the position of the first. All or nothing: CacheFullError."""
        state = self._state(sequence)
        first = state.n_tokens
        tail = state.tail()
        n_new = blocks_for(first + n) - len(state.blocks)
        is_plain = tail is None or not self.pool.is_shared(tail)
        if is_plain and 0 <= n <= self.n_ctx - first and n_new <= self.free_blocks():
            if n_new > 0:
                self._append(sequence, self.prefixes.allocate(n_new))
            state.n_tokens = first + n
            return first
        return self.reserve_all([(sequence, n)])[0]

    def blocks_needed(self, additions: Sequence[tuple[int, int]]) -> int:
        """Blocks that a step takes which adds n tokens to each of some sequences, given as (sequence, n)."""
        return blocks_wanted([(self._state(sequence), n) for sequence, n in additions], self.prefixes.n_users)

    def can_reserve_all(self, additions: Sequence[tuple[int, int]]) -> bool:
        """Whether all of these tokens fit together: the contexts and the free blocks allow them."""
        is_within = all(0 <= n <= self.n_ctx - self._state(sequence).n_tokens for sequence, n in additions)
        return is_within and self.blocks_needed(additions) <= self.free_blocks()

    def reserve_all(self, additions: Sequence[tuple[int, int]]) -> list[int]:
        """Makes room for n more tokens in each of some sequences, given as (sequence, n), none twice.

        Returns the position of each one's first token. All or nothing: CacheFullError. Blocks shared with others that
        would be written are copied.
        """
        if self._fits_as_it_is(additions):
            return [self._advance(sequence, n) for sequence, n in additions]
        states = [(self._state(sequence), n) for sequence, n in additions]
        if len({sequence for sequence, _ in additions}) < len(additions):
            raise CacheError("a sequence is named twice: give all its tokens at once")
        for state, n in states:
            if not 0 <= n <= self.n_ctx - state.n_tokens:
                raise self._beyond_context(state, n)
        n_wanted = blocks_wanted(states, self.prefixes.n_users)
        if n_wanted > self.free_blocks():
            n = sum(n for _, n in states)
            raise CacheFullError(
                f"{n} more tokens need {n_wanted} blocks, {self.free_blocks()} of {self.n_blocks} are free"
            )
        spare = iter(self.prefixes.allocate(n_wanted))
        return [self._extend(sequence, n, spare) for sequence, n in additions]

    def advance(self, additions: Sequence[tuple[int, int]]) -> int:
        """As reserve_all of the same additions again: a token for each, and no fork came between.

        The caller knows of a free block for each, and of room in their contexts; so nothing is asked about sharing or
        counted: this is the path of nearly all steps. Returns how often it can be done again without any block.
        """
        sequences, fullest = self._sequences, 0
        for sequence, _ in additions:
            state = sequences[sequence]
            if state is None:
                raise CacheError(f"sequence {sequence} is not open")
            within = state.n_tokens % KV_BLOCK
            if not within:
                self._append(sequence, self.prefixes.allocate(1))
            state.n_tokens += 1
            fullest = max(fullest, within)
        return KV_BLOCK - 1 - fullest

    def can_rollback(self, sequence: int, n: int) -> bool:
        """Whether the last `n` tokens can be forgotten: always, of an open sequence."""
        self._state(sequence)
        return n >= 0

    def rollback(self, sequence: int, n: int) -> None:
        """Forgets the last `n` tokens, all of them when there are fewer, and gives back the blocks they leave empty."""
        if n < 0:
            raise CacheError(f"cannot roll back {n} tokens")
        state = self._state(sequence)
        state.n_tokens = max(state.n_tokens - n, 0)
        n_kept = blocks_for(state.n_tokens)
        left = state.blocks[n_kept:]
        del state.blocks[n_kept:]
        del state.stored[state.n_tokens // KV_BLOCK :]
        self.prefixes.release(left)

    # ---- prefixes

    def find(self, token_ids: Sequence[int]) -> list[StoredBlock]:
        """The stored blocks a prompt starts with, never all of it: a token is left to compute. Changes nothing."""
        return self.prefixes.find(full_block_ids(token_ids[: max(len(token_ids) - 1, 0)]))

    def match(self, token_ids: Sequence[int]) -> int:
        """How many tokens of a prompt need not be computed. Changes nothing."""
        return len(self.find(token_ids)) * KV_BLOCK

    def can_open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True, n_spare: int = 0) -> bool:
        """Whether a row is free, and blocks for the whole prompt, those it shares counted once, and `n_spare` more."""
        return self.can_open_on(self.find(token_ids) if reuse else [], len(token_ids), n_spare)

    def open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True) -> tuple[int, int]:
        """A new sequence that holds as much of the prompt as is stored, and how many tokens that is.

        The rest is the caller's to reserve and compute, at least one token. With `reuse` off it finds nothing and
        publishes nothing. CacheFullError when no row is free or the prompt exceeds the context.
        """
        self.check_prompt(token_ids)
        found = self.find(token_ids) if reuse else []
        sequence = self.open_on(found, is_private=not reuse)
        if reuse:
            self.counters.add_lookup(len(found) * KV_BLOCK)
        return sequence, len(found) * KV_BLOCK

    def check_prompt(self, token_ids: Sequence[int]) -> None:
        """CacheFullError when no sequence could hold the prompt."""
        if len(token_ids) > self.n_ctx:
            raise CacheFullError(f"a prompt of {len(token_ids)} tokens exceeds the context of {self.n_ctx}")

    def can_open_on(self, chain: Sequence[StoredBlock], n_tokens: int, n_spare: int = 0) -> bool:
        """Whether a row is free, and blocks for what of `n_tokens` comes after a chain, with `n_spare` left over."""
        n_new = blocks_for(n_tokens) - len(chain)
        n_idle = sum(self.prefixes.is_idle(stored) for stored in chain)
        return self.can_open() and n_tokens <= self.n_ctx and n_new + n_spare <= self.free_blocks() - n_idle

    def open_on(self, chain: Sequence[StoredBlock], *, is_private: bool = False) -> int:
        """A new sequence that begins with a chain of stored blocks, as `find` gave it; CacheFullError.

        CacheError when one of them was evicted since.
        """
        if any(self.prefixes.stored(each.block) is not each for each in chain):
            raise CacheError("a block of the prefix was evicted since it was found: find it again")
        blocks = [stored.block for stored in chain]
        return self._open(SequenceState(len(chain) * KV_BLOCK, blocks, list(chain), is_private))

    def publish(self, sequence: int, token_ids: Sequence[int]) -> int:
        """Lets others find the sequence's full blocks; returns how many were new to it.

        `token_ids` are those of the sequence from its first one on whose keys and values are computed: at most
        n_tokens. What was published before is skipped. A block whose tokens another sequence has published is given
        back for that one. Nothing happens where reuse is off.
        """
        state = self._state(sequence)
        if len(token_ids) > state.n_tokens:
            raise CacheError(f"{len(token_ids)} tokens cannot be published, sequence {sequence} has {state.n_tokens}")
        n_before = len(state.stored)
        if state.is_private or len(token_ids) // KV_BLOCK <= n_before:
            return 0
        for ids in full_block_ids(token_ids[n_before * KV_BLOCK :]):
            index = len(state.stored)
            stored = self.prefixes.publish(state.stored[-1] if index else None, ids, state.blocks[index])
            if stored is None:
                break
            if stored.block != state.blocks[index]:
                self._swap(index, state.blocks[index], stored.block)
            state.stored.append(stored)
        return len(state.stored) - n_before

    def close(self) -> None:
        """Gives the memory back; no batch bound to it may run any more. Harmless when repeated."""
        self.storage.close()

    # ---- inside

    def _state(self, sequence: int) -> SequenceState:
        state = self._sequences[sequence] if 0 <= sequence < self.max_sequences else None
        if state is None:
            raise CacheError(f"sequence {sequence} is not open")
        return state

    def _open(self, state: SequenceState) -> int:
        """Gives a state its row, one more owner for each of its blocks."""
        if not self.can_open():
            raise CacheFullError(f"all {self.max_sequences} sequences are in use: close one first")
        sequence = self._sequences.index(None)
        self._table.write(sequence, 0, state.blocks)
        self.prefixes.retain(state.blocks)
        self._sequences[sequence] = state
        return sequence

    def _fits_as_it_is(self, additions: Sequence[tuple[int, int]]) -> bool:
        """Whether a step of one token each, rows ascending, fits blocks its sequences have already and have alone.

        Most decode steps do: no block to find, none to count.
        """
        previous, sequences, counts = -1, self._sequences, self.pool
        for sequence, n in additions:
            state = sequences[sequence] if previous < sequence < self.max_sequences else None
            if n != 1 or state is None or not state.n_tokens % KV_BLOCK or state.n_tokens >= self.n_ctx:
                return False
            if counts.is_shared(state.blocks[state.n_tokens // KV_BLOCK]):
                return False
            previous = sequence
        return True

    def _advance(self, sequence: int, n: int) -> int:
        state = self._state(sequence)
        first = state.n_tokens
        state.n_tokens = first + n
        return first

    def _extend(self, sequence: int, n: int, spare: Iterator[int]) -> int:
        """Adds `n` tokens, with blocks from `spare` for a copy of a shared tail and for what lies behind it."""
        state = self._state(sequence)
        first = state.n_tokens
        tail = state.tail() if n else None
        if tail is not None and self.pool.is_shared(tail):
            self._make_own(sequence, tail, spare)
        n_new = blocks_for(first + n) - len(state.blocks)
        if n_new > 0:
            self._append(sequence, [next(spare) for _ in range(n_new)])
        state.n_tokens = first + n
        return first

    def _append(self, sequence: int, added: list[int]) -> None:
        blocks = self._state(sequence).blocks
        self._table.write(sequence, len(blocks), added)
        blocks += added

    def _make_own(self, sequence: int, tail: int, spare: Iterator[int]) -> None:
        """Makes the sequence the one owner of the block its next token goes to.

        The store gives its share up: it must not make a sequence wait that has a cache of full size.
        """
        stored = self.prefixes.stored(tail)
        if stored is not None and self.prefixes.n_users(tail) == 1:
            self.prefixes.withdraw(stored)
            return
        copy = next(spare)
        self.storage.copy_block(tail, copy)
        self._replace(sequence, self._state(sequence).n_tokens // KV_BLOCK, copy)
        self.prefixes.release([tail])

    def _swap(self, index: int, own: int, stored: int) -> None:
        """Puts a stored block in place of one with the same tokens, wherever a sequence has that."""
        for sequence, state in enumerate(self._sequences):
            if state is not None and state.blocks[index : index + 1] == [own]:
                self.prefixes.retain([stored])
                self._replace(sequence, index, stored)
                self.prefixes.release([own])

    def _replace(self, sequence: int, index: int, block: int) -> None:
        self._state(sequence).blocks[index] = block
        self._table.write(sequence, index, [block])

    def _beyond_context(self, state: SequenceState, n: int) -> CacheError:
        if n < 0:
            return CacheError(f"cannot reserve {n} tokens")
        return CacheFullError(f"{n} more tokens after {state.n_tokens} exceed the context of {self.n_ctx}")
