"""The blocks of a KV cache: reference counts over a LIFO stack of free ids.

1. A fresh pool hands out 0, 1, 2 ...; a freed block is the next one handed out, lowest id first.
2. Allocation is all or nothing.
3. A block is free exactly when its count is 0.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

from emel.memory.errors import CacheError, CacheFullError

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlockPool:
    """`n_blocks` blocks, ids 0 to n_blocks - 1."""

    __slots__ = ("_counts", "_free", "n_blocks")

    def __init__(self, n_blocks: int) -> None:
        if n_blocks < 1:
            raise CacheError(f"a pool of {n_blocks} blocks holds nothing: at least 1 is needed")
        self.n_blocks = n_blocks
        self._counts = array("i", bytes(4 * n_blocks))
        self._free = list(range(n_blocks - 1, -1, -1))

    @property
    def n_free(self) -> int:
        """Blocks that can be allocated."""
        return len(self._free)

    def count(self, block: int) -> int:
        """How many owners a block has; 0 for a free one."""
        if not 0 <= block < self.n_blocks:
            raise CacheError(f"block {block} does not exist: this pool has 0 to {self.n_blocks - 1}")
        return self._counts[block]

    def is_shared(self, block: int) -> bool:
        """Whether a block of the pool has more than one owner: it must not be written then."""
        return self._counts[block] > 1

    def can_allocate(self, n: int) -> bool:
        """Whether `n` blocks are free."""
        return 0 <= n <= len(self._free)

    def allocate(self, n: int) -> list[int]:
        """`n` blocks with one owner each; CacheFullError, and nothing allocated, when there are not so many."""
        if not self.can_allocate(n):
            raise CacheFullError(f"{n} blocks are wanted, {self.n_free} of {self.n_blocks} are free")
        blocks = [self._free.pop() for _ in range(n)]
        for block in blocks:
            self._counts[block] = 1
        return blocks

    def retain(self, blocks: Sequence[int]) -> None:
        """One more owner for each; CacheError, and nothing changed, when one of them is free."""
        for block in blocks:
            if not self.count(block):
                raise CacheError(f"block {block} is free: it cannot get another owner")
        for block in blocks:
            self._counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One owner less for each, counted from the last; CacheError, and nothing changed, when that is too many."""
        for block, n_lost in Counter(blocks).items():
            if self.count(block) < n_lost:
                raise CacheError(f"block {block} has {self.count(block)} owners: it cannot lose {n_lost}")
        for block in reversed(blocks):
            self._counts[block] -= 1
            if not self._counts[block]:
                self._free.append(block)
