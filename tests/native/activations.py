"""The quantised activation record (native/src/kernels/layout.h) written down once more, in NumPy float32."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - read at run time by NamedTuple

BLOCK = 32
RADIX = 255
MOST_QUANTUM = 127 * RADIX + 127
MOST_OF_ONE_PLANE = 127
SMALLEST_AMAX = np.float32(2.0**-112)  # below it a block is zero


class Record(NamedTuple):
    """One token's activations; n_blocks = ceil(n / 32)."""

    high: NDArray[np.int8]  # (n_blocks, 32); of one plane, the whole value
    low: NDArray[np.int8]  # (n_blocks, 32); of one plane, (n_blocks, 0)
    scale: NDArray[np.float32]  # (n_blocks,)
    scaled_sum: NDArray[np.float32]  # (n_blocks,) scale * sum(q)
    negative_sum: NDArray[np.int32]  # (n_blocks,)
    half_sums: NDArray[np.int32]  # (n_blocks, 2)

    def parts(self) -> dict[str, NDArray[Any]]:
        """The arrays by their names."""
        return self._asdict()

    def values(self) -> NDArray[np.float64]:
        """(n_blocks * 32,) what the record stands for."""
        q = RADIX * self.high.astype(np.int64) + self.low if self.low.size else self.high.astype(np.int64)
        return (q * self.scale.astype(np.float64)[:, None]).ravel()


def read_record(raw: NDArray[np.uint8], n: int, n_planes: int = 2) -> Record:
    """The parts of a record of n values."""
    n_blocks = -(-n // BLOCK)
    types = (np.int8, np.int8, np.float32, np.float32, np.int32, np.int32)
    shapes = (
        (n_blocks, BLOCK),
        (n_blocks, BLOCK * (n_planes - 1)),
        (n_blocks,),
        (n_blocks,),
        (n_blocks,),
        (n_blocks, 2),
    )
    parts, at = [], 0
    for dtype, shape in zip(types, shapes, strict=True):
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        parts.append(raw[at : at + n_bytes].view(dtype).reshape(shape))
        at += n_bytes
    return Record(*parts)


def quantized(x: NDArray[np.float32], n_planes: int = 2) -> Record:
    """The record of (n,) values, every operation a float32 one as the contract says."""
    padded = np.zeros(-(-len(x) // BLOCK) * BLOCK, np.float32)
    padded[: len(x)] = x
    blocks = padded.reshape(-1, BLOCK)
    amax = np.abs(blocks).max(axis=1)
    most = np.float32(MOST_QUANTUM if n_planes == 2 else MOST_OF_ONE_PLANE)
    with np.errstate(all="ignore"):
        is_zero = amax < SMALLEST_AMAX
        is_bad = ~np.asarray(np.isfinite(blocks).all(axis=1))
        scale = np.where(is_zero, np.float32(0), amax / most)
        inverse = np.where(is_zero | is_bad, np.float32(0), most / amax)
        q = np.rint(np.where(is_bad[:, None], np.float32(0), blocks) * inverse[:, None]).astype(np.int32)
    scale[is_bad] = np.nan
    high = q if n_planes == 1 else np.rint(q.astype(np.float32) * np.float32(1.0 / RADIX)).astype(np.int32)
    half_sums = q.reshape(-1, 2, 16).sum(axis=2, dtype=np.int32)
    total = half_sums.sum(axis=1, dtype=np.int32)
    low = (q - RADIX * high).astype(np.int8)[:, : BLOCK * (n_planes - 1)]
    return Record(high.astype(np.int8), low, scale, scale * total.astype(np.float32), -total, half_sums)
