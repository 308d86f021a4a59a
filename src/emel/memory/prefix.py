"""PrefixStore: full blocks found again by the tokens that lead to them, and kept after their sequence is gone.

1. A block is known by a chain of hashes: blake2b over the key of the block before it and its own 16 token ids. A match
   compares the ids and the block before it as well, so two prompts with equal hashes never share anything.
2. The store owns each of its blocks once. One that nobody else owns is *idle*; it can be had by evicting it.
3. Who owns a stored block owns all stored blocks before it, so what follows an idle block is idle. Chains become idle
   from their end, hence nothing is stored behind the oldest idle block: evicting it is O(1) and strands nothing.

Bookkeeping alone: equal tokens after equal tokens have equal keys and values, since no batch changes a bit.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING

from emel.kernel.sizes import KV_BLOCK
from emel.lazy_dataclasses import dataclass
from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from emel.memory.blocks import BlockPool

_ROOT = bytes(16)
_ID_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class StoredBlock:
    """A full block of keys and values: `ids` are the bytes of its 16 int32 token ids, `parent` is the block before."""

    key: bytes
    parent: StoredBlock | None
    ids: bytes
    block: int


@dataclass(slots=True)
class PrefixCounters:
    """What reuse has done so far; only ever added to."""

    n_lookups: int = 0  # sequences opened with a prompt to look for
    n_hits: int = 0  # of them: those that found at least one block
    n_tokens_reused: int = 0
    n_published: int = 0  # blocks
    n_evicted: int = 0  # blocks

    def add_lookup(self, n_tokens: int) -> None:
        """Counts a sequence that was opened with a prompt, and found `n_tokens` of it."""
        self.n_lookups += 1
        self.n_hits += n_tokens > 0
        self.n_tokens_reused += n_tokens


def full_block_ids(token_ids: Sequence[int]) -> list[bytes]:
    """The bytes of the ids of each full block of 16 tokens; CacheError for ids that are not int32."""
    try:
        ids = array("i", token_ids).tobytes()
    except (OverflowError, TypeError) as error:
        raise CacheError(f"token ids must be int32: {error}") from error
    step = KV_BLOCK * _ID_BYTES
    return [ids[start : start + step] for start in range(0, len(ids) - step + 1, step)]


def _chain_key(parent: StoredBlock | None, ids: bytes) -> bytes:
    return blake2b((_ROOT if parent is None else parent.key) + ids, digest_size=16).digest()


class PrefixStore:
    """The stored blocks of a pool, and the door to the pool for all who must not get in their way.

    At most `max_idle` idle ones are kept (None: as many as the pool has room for). `on_drop` hears of every block that
    leaves the store.
    """

    __slots__ = ("_by_block", "_idle", "_index", "_pool", "counters", "max_idle", "on_drop")

    def __init__(self, pool: BlockPool, max_idle: int | None = None) -> None:
        if max_idle is not None and max_idle < 0:
            raise CacheError(f"a prefix store cannot keep {max_idle} blocks: 0 or more are allowed")
        self._pool = pool
        self._index: dict[bytes, StoredBlock] = {}
        self._by_block: dict[int, StoredBlock] = {}
        self._idle: dict[StoredBlock, None] = {}  # the oldest first
        self.max_idle = max_idle
        self.counters = PrefixCounters()
        self.on_drop: Callable[[StoredBlock], None] | None = None

    @property
    def n_stored(self) -> int:
        """Blocks in the store."""
        return len(self._index)

    @property
    def n_idle(self) -> int:
        """Blocks that only the store owns."""
        return len(self._idle)

    @property
    def n_available(self) -> int:
        """Blocks that `allocate` can give: free ones and idle ones."""
        return self._pool.n_free + len(self._idle)

    def is_idle(self, stored: StoredBlock) -> bool:
        """Whether only the store owns the block."""
        return stored in self._idle

    def n_users(self, block: int) -> int:
        """Owners of a block besides the store."""
        return self._pool.count(block) - (block in self._by_block)

    def stored(self, block: int) -> StoredBlock | None:
        """What is stored of a block."""
        return self._by_block.get(block)

    def blocks(self) -> list[int]:
        """The blocks the store owns."""
        return [stored.block for stored in self._index.values()]

    # ---- blocks of sequences

    def allocate(self, n: int) -> list[int]:
        """`n` blocks of one owner, evicting the least recently used idle ones. All or nothing: CacheFullError."""
        if not 0 <= n <= self.n_available:
            raise CacheFullError(f"{n} blocks are wanted, {self.n_available} of {self._pool.n_blocks} are free")
        while self._pool.n_free < n:
            self._evict()
        return self._pool.allocate(n)

    def retain(self, blocks: Sequence[int]) -> None:
        """One more owner for each of a sequence's blocks, given in the order of positions."""
        self._pool.retain(blocks)
        if self._idle:
            for block in blocks:
                stored = self._by_block.get(block)
                if stored is not None:
                    self._idle.pop(stored, None)

    def release(self, blocks: Sequence[int]) -> None:
        """One owner less for each of a sequence's blocks, given in the order of positions; the last goes first."""
        self._pool.release(blocks)
        for block in reversed(blocks):
            stored = self._by_block.get(block)
            if stored is not None and not self._pool.is_shared(block):
                self._idle[stored] = None
        while self.max_idle is not None and len(self._idle) > self.max_idle:
            self._evict()

    # ---- prefixes

    def find(self, block_ids: Iterable[bytes]) -> list[StoredBlock]:
        """The longest stored chain that starts with these blocks of ids. Changes nothing."""
        found: list[StoredBlock] = []
        parent = None
        for ids in block_ids:
            stored = self._index.get(_chain_key(parent, ids))
            if stored is None or stored.ids != ids or stored.parent is not parent:
                break
            found.append(stored)
            parent = stored
        return found

    def publish(self, parent: StoredBlock | None, ids: bytes, block: int) -> StoredBlock | None:
        """Stores a block that a sequence owns, or finds the one that was stored for the same tokens before.

        None when other tokens have the same hash: what is stored stays. CacheError when the block is stored for others.
        """
        own = self._by_block.get(block)
        if own is not None:
            if own.ids != ids:
                raise CacheError(
                    f"block {block} was published with other tokens: give those the sequence was computed of"
                )
            return own if own.parent is parent else None
        key = _chain_key(parent, ids)
        stored = self._index.get(key)
        if stored is not None:
            return stored if stored.ids == ids and stored.parent is parent else None
        stored = StoredBlock(key, parent, ids, block)
        self._pool.retain([block])
        self._index[key] = self._by_block[block] = stored
        self.counters.n_published += 1
        return stored

    def withdraw(self, stored: StoredBlock) -> None:
        """Takes a block out that its one user is going to overwrite, and what is stored behind it (all of it idle)."""
        behind = {stored}
        for each in reversed(self._idle):
            if each.parent in behind:
                behind.add(each)
        for each in [each for each in self._idle if each in behind]:
            self._drop(each)
        self._drop(stored)

    def clear(self) -> None:
        """Drops all idle blocks."""
        while self._idle:
            self._evict()

    def _evict(self) -> None:
        self._drop(next(iter(self._idle)))
        self.counters.n_evicted += 1

    def _drop(self, stored: StoredBlock) -> None:
        self._index.pop(stored.key, None)
        self._by_block.pop(stored.block, None)
        self._idle.pop(stored, None)
        self._pool.release([stored.block])
        if self.on_drop is not None:
            self.on_drop(stored)
