"""Seeded random tensors in any GGUF type, and a vocabulary of bytes, for models small enough to compute in a blink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
from gguf.quants import quantize

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Formats the gguf package reads but does not write: where a block's float16 scales lie, and about how large the weights
# would be with a scale of one (the second scale takes the mean off). https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
RANDOM_BLOCKS = {
    "Q2_K": ((80, 15.0), (82, 10.0)),
    "Q3_K": ((108, 45.0),),
    "Q4_K": ((0, 300.0), (2, 40.0)),
    "Q5_K": ((0, 600.0), (2, 39.0)),
    "Q6_K": ((208, 1400.0),),
    "IQ4_NL": ((0, 70.0),),
    "IQ4_XS": ((0, 1300.0),),
}


def random_matrix(
    random: np.random.Generator, shape: tuple[int, ...], type_: gguf.GGMLQuantizationType
) -> NDArray[np.float32] | NDArray[np.uint8]:
    """Values (..., cols) of about the deviation 1 / sqrt(cols), encoded as `type_`."""
    if type_.name in RANDOM_BLOCKS:
        return _random_blocks(random, shape, type_)
    values = (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
    encoded: NDArray[np.float32] | NDArray[np.uint8] = quantize(values, type_)
    return encoded


def random_vector(random: np.random.Generator, n: int, around: float) -> NDArray[np.float32]:
    """n values with a deviation of 0.2."""
    return (around + 0.2 * random.standard_normal(n)).astype(np.float32)


def _random_blocks(
    random: np.random.Generator, shape: tuple[int, ...], type_: gguf.GGMLQuantizationType
) -> NDArray[np.uint8]:
    """Random bytes, with scales that give weights of about the right deviation."""
    n_elements, n_bytes = gguf.GGML_QUANT_SIZES[type_]
    *outer, cols = shape
    n_blocks = int(np.prod(shape)) // n_elements
    raw = random.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for at, unit in RANDOM_BLOCKS[type_.name]:
        scale = random.uniform(0.9, 1.1, n_blocks) / (unit * np.sqrt(cols))
        raw[:, at : at + 2] = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return raw.reshape(*outer, -1)


def add_byte_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """An end token, the bytes in GPT-2's spelling (printable Latin-1 as itself, others from U+0100 on), "th"."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    spelled = [chr(byte if byte in printable else next(spare)) for byte in range(256)]
    unused = [f"<unused{index}>" for index in range(n_vocab - 258)]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<end>", *spelled, "th", *unused])
    writer.add_token_types([kinds.CONTROL, *[kinds.NORMAL] * 257, *[kinds.UNUSED] * len(unused)])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
