"""BlockTable: which block holds which positions of a sequence, in memory that plan runs read where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.kernel.buffers import address_of, int32_array

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlockTable:
    """(n_rows, stride) int32 block ids; what a row holds behind a sequence's last block is never read."""

    __slots__ = ("_entries", "address", "n_rows", "stride")

    def __init__(self, n_rows: int, stride: int) -> None:
        self.n_rows = n_rows
        self.stride = stride
        self._entries = int32_array(n_rows * stride)
        self.address = address_of(self._entries)

    def write(self, row: int, first: int, blocks: Sequence[int]) -> None:
        """Writes consecutive entries of a row."""
        for entry, block in enumerate(blocks, row * self.stride + first):
            self._entries[entry] = block
