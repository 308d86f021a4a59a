"""The experts of gpt-oss: Hugging Face has gate and up in turns, published ones as MXFP4 in an order of their own.

MXFP4 (https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf): 32 numbers of 4 bits with
a power of two as scale. Hugging Face has tensors of scales (experts, rows, blocks) and of bytes (experts, rows, blocks,
16) whose low half is number 2i, whose high half is number 2i + 1; a GGUF block is the scale, then bytes of the numbers
i and i + 16. Weights that are not quantised are transposed: (experts, cols, rows).
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.convert.errors import ConvertError
from emel.convert.out_tensors import OutTensor, changed
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emel.convert.hf_files import HfTensor

EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)(_bias|_blocks|_scales)?")
_PARTS = {
    "gate_up_proj": {"gate": slice(0, None, 2), "up": slice(1, None, 2)},
    "down_proj": {"down": slice(None)},
}


def expert_tensors(match: re.Match[str], tensors: Mapping[str, HfTensor]) -> list[OutTensor]:
    """What tensor EXPERT matched becomes; nothing for scales, which come along with their blocks. ConvertError."""
    layer, which, kind = match.groups()
    tensor = tensors[match[0]]
    out = []
    for part, rows in _PARTS[which].items():
        name = f"blk.{layer}.ffn_{part}_exps.{'bias' if kind == '_bias' else 'weight'}"
        if kind == "_blocks":
            scales = tensors.get(match[0].removesuffix("_blocks") + "_scales")
            out.append(_from_blocks(name, tensor, scales, rows))
        elif kind == "_bias":
            out.append(_from_values(name, tensor, tensor.shape, partial(_chosen, rows=rows)))
        elif kind is None:
            shape = (tensor.shape[0], tensor.shape[2], tensor.shape[1])
            out.append(_from_values(name, tensor, shape, partial(_transposed, rows=rows)))
    return out


def _from_values(name: str, tensor: HfTensor, shape: tuple[int, ...], change: Any) -> OutTensor:
    n_parts = 1 if "_down_" in name else 2
    return OutTensor(name, (shape[0], shape[1] // n_parts, *shape[2:]), (partial(changed, tensor.load, change),))


def _from_blocks(name: str, blocks: HfTensor, scales: HfTensor | None, rows: slice) -> OutTensor:
    if scales is None or scales.shape != blocks.shape[:-1] or blocks.shape[-1] != 16:
        raise ConvertError(f"tensor {blocks.name!r} needs scales, one for each block of 16 bytes")
    n_experts, n_rows, n_blocks, _ = blocks.shape
    shape = (n_experts, len(range(n_rows)[rows]), 32 * n_blocks)
    return OutTensor(name, shape, (partial(_mxfp4, blocks, scales, rows),), TensorType.MXFP4)


def _mxfp4(blocks: HfTensor, scales: HfTensor, rows: slice) -> NDArray[np.uint8]:
    """The bytes of GGUF's blocks."""
    pairs = blocks.load_bytes()[:, rows]
    numbers = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(*pairs.shape[:-1], 32)
    packed = numbers[..., :16] | numbers[..., 16:] << 4
    return np.concatenate((scales.load_bytes()[:, rows, :, None], packed), axis=-1).reshape(-1)


def _chosen(values: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
    return values[:, rows]


def _transposed(values: NDArray[np.float32], rows: slice) -> NDArray[np.float32]:
    return values.swapaxes(1, 2)[:, rows]
