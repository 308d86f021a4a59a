"""Q4_K, Q5_K and Q6_K: super-blocks of 256 values as bytes.

Layouts: `block_q4_K` and those beside it in
https://github.com/ggml-org/llama.cpp/blob/b6000/ggml/src/ggml-common.h
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel.convert.k_search import SUPER, AffineBlocks, SymmetricBlocks, fit_affine, fit_symmetric
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

K_TYPES = (TensorType.Q4_K, TensorType.Q5_K, TensorType.Q6_K)
_LOW, _FOUR = np.uint8(15), np.uint8(4)
_PIECE = 1 << 16
"""Values that are computed at a time: the arrays of the search stay in a core's cache."""


def quantize_k(values: NDArray[np.float32], type_: TensorType) -> Bytes:
    """The bytes (n_bytes,) of values whose number is a multiple of 256, in a type of K_TYPES."""
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, SUPER)
    step = _PIECE // SUPER
    pieces = [_quantize_piece(blocks[begin : begin + step], type_) for begin in range(0, len(blocks), step)]
    return np.concatenate(pieces).reshape(-1) if pieces else np.zeros(0, dtype=np.uint8)


def _quantize_piece(blocks: NDArray[np.float32], type_: TensorType) -> Bytes:
    match type_:
        case TensorType.Q4_K:
            return pack_q4_k(fit_affine(blocks, 16))
        case TensorType.Q5_K:
            return pack_q5_k(fit_affine(blocks, 32))
        case TensorType.Q6_K:
            return pack_q6_k(fit_symmetric(blocks))
    raise ValueError(f"{type_.name} is none of {', '.join(each.name for each in K_TYPES)}")


def pack_q4_k(blocks: AffineBlocks) -> Bytes:
    """(n, 144): d, d_min, 12 bytes of scales and offsets, then 4 bits a value."""
    return np.concatenate([_head(blocks), _nibbles(blocks.q)], axis=1)


def pack_q5_k(blocks: AffineBlocks) -> Bytes:
    """(n, 176): as Q4_K, with the fifth bits before the low four: bit s of byte j is that of value j of sub-block s."""
    high = np.bitwise_or.reduce((blocks.q >> _FOUR) << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    return np.concatenate([_head(blocks), high, _nibbles(blocks.q & _LOW)], axis=1)


def pack_q6_k(blocks: SymmetricBlocks) -> Bytes:
    """(n, 210): the low 4 bits, the high 2 bits, 16 scales, d; q is stored plus 32."""
    n = len(blocks.d)
    q = (blocks.q.astype(np.int16) + 32).astype(np.uint8).reshape(n, 2, 4, 32)  # halves of four runs of 32
    low = (q[:, :, :2] & _LOW) | ((q[:, :, 2:] & _LOW) << _FOUR)
    high = np.bitwise_or.reduce((q >> _FOUR) << np.array([0, 2, 4, 6], dtype=np.uint8)[:, None], axis=2)
    parts = (low.reshape(n, 128), high.reshape(n, 64), blocks.scales.view(np.uint8), _halves(blocks.d))
    return np.concatenate(parts, axis=1)


def _head(blocks: AffineBlocks) -> Bytes:
    """(n, 16): d, d_min, and 6 bits for each of 8 scales and 8 offsets."""
    sc, mn = blocks.scales, blocks.mins
    first = sc[:, :4] | ((sc[:, 4:] >> 4) << 6)
    second = mn[:, :4] | ((mn[:, 4:] >> 4) << 6)
    third = (sc[:, 4:] & _LOW) | ((mn[:, 4:] & _LOW) << _FOUR)
    return np.concatenate([_halves(blocks.d), _halves(blocks.d_min), first, second, third], axis=1)


def _nibbles(q: Bytes) -> Bytes:
    """(n, 128) of q (n, 8, 32): two sub-blocks share 32 bytes, the first in the low half."""
    return np.asarray(q[:, 0::2] | (q[:, 1::2] << _FOUR), dtype=np.uint8).reshape(len(q), 128)


def _halves(d: NDArray[np.float16]) -> Bytes:
    """(n, 2): the bytes of float16 (n,)."""
    return d.astype("<f2").view(np.uint8).reshape(-1, 2)
