"""Random rows of every format, written as bytes: any quants and sub-block scales, super scales that are finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

from emel.kernel.packing import PACKABLE
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOAT_TYPES = tuple(each for each in PACKABLE if not each.is_quantized)
BLOCK_TYPES = tuple(each for each in PACKABLE if each.is_quantized)

# Where the float16 scales of a block lie (https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h).
_HALVES = {
    TensorType.Q4_0: [0],
    TensorType.Q4_1: [0, 2],
    TensorType.Q5_0: [0],
    TensorType.Q5_1: [0, 2],
    TensorType.Q8_0: [0],
    TensorType.Q2_K: [80, 82],
    TensorType.Q3_K: [108],
    TensorType.Q4_K: [0, 2],
    TensorType.Q5_K: [0, 2],
    TensorType.Q6_K: [208],
    TensorType.IQ1_S: [0],
    TensorType.IQ2_XXS: [0],
    TensorType.IQ2_XS: [0],
    TensorType.IQ2_S: [0],
    TensorType.IQ3_XXS: [0],
    TensorType.IQ3_S: [0],
    TensorType.IQ4_NL: [0],
    TensorType.IQ4_XS: [0],
    TensorType.TQ1_0: [52],
    TensorType.TQ2_0: [64],
}


def random_rows(type_: TensorType, rows: int, cols: int, seed: int = 0) -> tuple[bytes, NDArray[np.float64]]:
    """(rows, cols) as GGUF bytes of a type, and what those bytes mean by the gguf package."""
    rng = np.random.default_rng(seed + rows * 1000 + cols)
    kind = gguf.GGMLQuantizationType(int(type_))
    if type_.is_quantized:
        raw = _random_blocks(rng, type_, rows * cols // type_.block_elements)
    else:
        raw = gguf.quants.quantize(rng.standard_normal((rows, cols)).astype(np.float32), kind).view(np.uint8)
    meant = gguf.quants.dequantize(raw.reshape(rows, -1), kind).reshape(rows, cols)
    return raw.tobytes(), meant.astype(np.float64)


def _random_blocks(rng: np.random.Generator, type_: TensorType, n_blocks: int) -> NDArray[np.uint8]:
    blocks = rng.integers(0, 256, (n_blocks, type_.block_bytes), np.uint8)
    if type_ is TensorType.MXFP4:
        blocks[:, 0] = rng.integers(120, 130, n_blocks)  # an exponent of two
    elif type_ is TensorType.TQ1_0:  # of base-3 digits, 256 * value / 243 rounded up
        blocks[:, :52] = -(-rng.integers(0, 243, (n_blocks, 52)) * 256 // 243)
        blocks[:, 48:52] = -(-rng.integers(0, 81, (n_blocks, 4)) * 3 * 256 // 243)
    elif type_ is TensorType.TQ2_0:
        digits = rng.integers(0, 3, (n_blocks, 64, 4), np.uint8)
        blocks[:, :64] = digits[..., 0] | digits[..., 1] << 2 | digits[..., 2] << 4 | digits[..., 3] << 6
    elif type_ is TensorType.IQ1_M:  # a float16 scale in the upper nibbles of four words
        scale = rng.uniform(0.01, 0.1, n_blocks).astype(np.float16).view(np.uint16)
        words = blocks[:, 48:].view(np.uint16)
        words[:] = words & 0xFFF | scale[:, None] >> np.arange(0, 16, 4, dtype=np.uint16) << 12
    for at in _HALVES.get(type_, []):
        scale = rng.uniform(0.01, 0.1, n_blocks) * rng.choice([-1, 1], n_blocks)
        blocks[:, at : at + 2] = scale.astype(np.float16)[:, None].view(np.uint8)
    return blocks
