"""The bytes of a KV cache: per layer, per block, per head the keys (head_dim, 16), then the values (16, head_dim).

A layer's blocks are adjacent, so one block of all layers is `n_kv_layers` pieces of `block_bytes`. float16; a head's
keys are padded to 64 bytes, a token's values to 16 numbers (KvLayout in native/src/kernels/layout.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel.kernel.buffers import Memory
from emel.kernel.sizes import ALIGNMENT, KV_BLOCK, kv_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_F16 = 2  # bytes


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """What decides the layout of a block: layers that keep keys and values, their heads, numbers in a head."""

    n_kv_layers: int
    n_kv_heads: int
    head_dim: int

    @property
    def values_at(self) -> int:
        """Bytes of a head's keys, after which its values begin."""
        return -(-self.head_dim * KV_BLOCK * _F16 // ALIGNMENT) * ALIGNMENT

    @property
    def value_bytes(self) -> int:
        """Bytes of one token's values of a head."""
        return -(-self.head_dim // 16) * 16 * _F16

    @property
    def head_bytes(self) -> int:
        """Bytes of a head in a block of one layer."""
        return self.values_at + self.value_bytes * KV_BLOCK

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of one layer."""
        return self.head_bytes * self.n_kv_heads

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block of all layers: what one more block of a cache costs."""
        return self.block_bytes * self.n_kv_layers


class KvStorage:
    """Memory for `n_blocks` blocks, touched only as far as it is used; ValueError when it is too large."""

    __slots__ = ("_memory", "_view", "geometry", "n_blocks")

    def __init__(self, geometry: KvGeometry, n_blocks: int) -> None:
        self.geometry = geometry
        self.n_blocks = n_blocks
        self._memory = Memory(kv_bytes(geometry.n_kv_layers, n_blocks, geometry.n_kv_heads, geometry.head_dim))
        self._view = self._memory.view()

    @property
    def address(self) -> int:
        """Where the bytes begin."""
        return self._memory.address

    @property
    def n_bytes(self) -> int:
        """Bytes of all blocks of all layers."""
        return self._memory.n_bytes

    def copy_block(self, source: int, target: int) -> None:
        """Copies a block of all layers.

        Measured against one native call: a slice per layer costs 0.4 us besides the copying itself (SmolLM2, 30 layers
        and 360 KB: 50 to 60 us either way), so the C ABI needs no function for it.
        """
        view, n, step = self._view, self.geometry.block_bytes, self.n_blocks * self.geometry.block_bytes
        shift = (target - source) * n
        for start in range(source * n, self.n_bytes, step):
            view[start + shift : start + shift + n] = view[start : start + n]

    def pieces(self, blocks: Sequence[int], layers: Iterable[int] | None = None) -> Iterator[memoryview[int]]:
        """Writable views of `blocks` in their order, for each layer; neighbours in memory come as one view."""
        n = self.geometry.block_bytes
        runs = list(_runs(blocks))
        for layer in range(self.geometry.n_kv_layers) if layers is None else layers:
            base = layer * self.n_blocks
            for first, length in runs:
                yield self._view[(base + first) * n : (base + first + length) * n]

    def forget_slots(self, block: int, n_kept: int) -> None:
        """Zeroes what lies in a block behind its first `n_kept` tokens: another sequence may have left it there."""
        geometry = self.geometry
        empty_keys = memoryview(bytes(_F16 * geometry.head_dim)).cast("H")
        empty_values = bytes(geometry.value_bytes * (KV_BLOCK - n_kept))
        for piece in self.pieces([block]):
            for head in range(0, geometry.block_bytes, geometry.head_bytes):
                keys = piece[head : head + geometry.head_dim * KV_BLOCK * _F16].cast("H")
                for slot in range(n_kept, KV_BLOCK):
                    keys[slot::KV_BLOCK] = empty_keys
                end = head + geometry.head_bytes
                piece[end - len(empty_values) : end] = empty_values

    def close(self) -> None:
        """Gives the memory back; harmless when repeated."""
        self._view.release()
        self._memory.close()


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, length) of each run of ascending neighbours."""
    start = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - 1] + 1:
            yield blocks[start], index - start
            start = index
