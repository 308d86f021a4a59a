"""The bytes of a KV cache: per layer, per block, per head the keys of 16 tokens, then their values.

A layer's blocks are adjacent, so one block of all layers is `n_kv_layers` pieces of `block_bytes`. F16: keys
(head_dim, 16), padded to 64 bytes, values (16, head_dim padded to 16), float16; F32: the same in float32. Q8_0: keys as
16 rows of a packed Q8_0 matrix, float16 scales of the values (parts of 32 numbers, 16), padded to 64 bytes, values as
int8 (KvLayout in native/src/kernels/layout.h).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from emel.kernel.buffers import Memory
from emel.kernel.sizes import KV_BLOCK, KV_PART, KV_TYPES, aligned, kv_bytes
from emel.lazy_dataclasses import dataclass
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SCALE = 2  # bytes of a float16
_NUMBER = {TensorType.F16: 2, TensorType.F32: 4, TensorType.Q8_0: 1}  # bytes, without scales
_UNIT = 64 + 2 * KV_PART * KV_BLOCK  # bytes of two parts of 16 packed Q8_0 rows, their scales before them


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """What decides the layout of a block: layers that keep keys and values, their heads, numbers in a head."""

    n_kv_layers: int
    n_kv_heads: int
    head_dim: int

    kv_type: TensorType = KV_TYPES[0]

    @property
    def is_quantized(self) -> bool:
        """Whether numbers have scales."""
        return self.kv_type is TensorType.Q8_0

    @property
    def n_parts(self) -> int:
        """Parts of a head that have a scale each, where numbers have scales."""
        return -(-self.head_dim // KV_PART)

    @property
    def number_bytes(self) -> int:
        """Bytes of a number, without its scale."""
        return _NUMBER[self.kv_type]

    @property
    def values_at(self) -> int:
        """Bytes of a head's keys, after which its values begin, or their scales."""
        if self.is_quantized:
            return -(-self.n_parts // 2) * _UNIT
        return aligned(self.head_dim * KV_BLOCK * self.number_bytes)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of a head's values."""
        return aligned(self.n_parts * KV_BLOCK * _SCALE) if self.is_quantized else 0

    @property
    def value_bytes(self) -> int:
        """Bytes of one token's values of a head, without scales."""
        return -(-self.head_dim // 16) * 16 * self.number_bytes

    @property
    def head_bytes(self) -> int:
        """Bytes of a head in a block of one layer."""
        return self.values_at + self.scale_bytes + self.value_bytes * KV_BLOCK

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
        g = geometry
        self._memory = Memory(kv_bytes(g.n_kv_layers, n_blocks, g.n_kv_heads, g.head_dim, g.kv_type))
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
        for piece in self.pieces([block]):
            for head in range(0, self.geometry.block_bytes, self.geometry.head_bytes):
                self._forget_head(piece[head : head + self.geometry.head_bytes], n_kept)

    def _forget_head(self, head: memoryview[int], n_kept: int) -> None:
        g = self.geometry
        values = g.values_at + g.scale_bytes + g.value_bytes * n_kept
        head[values:] = bytes(len(head) - values)
        if not g.is_quantized:
            code: Literal["H", "I"] = "H" if g.kv_type is TensorType.F16 else "I"
            _forget_columns(head[: g.head_dim * KV_BLOCK * g.number_bytes], code, n_kept)
            return
        for unit in range(0, g.values_at, _UNIT):
            _forget_columns(head[unit : unit + 64], "H", n_kept)
            _forget_columns(head[unit + 64 : unit + _UNIT], "I", n_kept)
        _forget_columns(head[g.values_at : g.values_at + g.n_parts * KV_BLOCK * _SCALE], "H", n_kept)

    def close(self) -> None:
        """Gives the memory back; harmless when repeated."""
        self._view.release()
        self._memory.close()


def _forget_columns(rows: memoryview[int], code: Literal["H", "I"], n_kept: int) -> None:
    """Zeroes the columns behind the first `n_kept` of rows of 16 numbers."""
    numbers = rows.cast(code)
    empty = memoryview(bytes(rows.nbytes // KV_BLOCK)).cast(code)
    for slot in range(n_kept, KV_BLOCK):
        numbers[slot::KV_BLOCK] = empty


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, length) of each run of ascending neighbours."""
    start = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or blocks[index] != blocks[index - 1] + 1:
            yield blocks[start], index - start
            start = index
