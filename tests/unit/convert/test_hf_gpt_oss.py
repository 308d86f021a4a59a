"""MXFP4 experts of gpt-oss as published: each number is where GGUF has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from safetensors.numpy import save_file

from emel.convert.errors import ConvertError
from emel.convert.hf_files import read_tensors
from emel.convert.hf_gpt_oss import EXPERT, expert_tensors
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N_EXPERTS, D_MODEL, D_FF = 3, 64, 32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""The numbers of 4 bits (https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf)."""


def random_blocks(rows: int, cols: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float32]]:
    """Blocks and scales as published, and their values (experts, rows, cols)."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (N_EXPERTS, rows, cols // 32, 16), dtype=np.uint8)
    scales = random.integers(120, 135, (N_EXPERTS, rows, cols // 32), dtype=np.uint8)
    numbers = np.stack((E2M1[blocks & 15], E2M1[blocks >> 4]), axis=-1).reshape(N_EXPERTS, rows, cols // 32, 32)
    values = numbers * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return blocks, scales, values.reshape(N_EXPERTS, rows, cols)


def test_published_blocks_keep_their_values(tmp_path: Path) -> None:
    name = "model.layers.7.mlp.experts."
    gate_up, down = random_blocks(2 * D_FF, D_MODEL, 1), random_blocks(D_MODEL, D_FF, 2)
    tensors: dict[str, NDArray[Any]] = {}
    for which, (blocks, scales, _) in (("gate_up_proj", gate_up), ("down_proj", down)):
        tensors |= {f"{name}{which}_blocks": blocks, f"{name}{which}_scales": scales}
    save_file(tensors, tmp_path / "model.safetensors")
    found = read_tensors(tmp_path)
    out = [each for key in found if (match := EXPERT.fullmatch(key)) for each in expert_tensors(match, found)]
    expected = {"gate": gate_up[2][:, ::2], "up": gate_up[2][:, 1::2], "down": down[2]}
    assert {each.name for each in out} == {f"blk.7.ffn_{part}_exps.weight" for part in expected}
    for each in out:
        values = expected[each.name.split("_")[1]]
        assert (each.stored, each.shape) == (TensorType.MXFP4, values.shape)
        data = each.pieces[0]().reshape(*values.shape[:2], -1)
        assert np.array_equal(dequantize(data, gguf.GGMLQuantizationType.MXFP4), values)


def test_blocks_without_scales_are_refused(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.down_proj_blocks"
    save_file({name: np.zeros((1, 32, 1, 16), np.uint8)}, tmp_path / "model.safetensors")
    match = EXPERT.fullmatch(name)
    assert match is not None
    with pytest.raises(ConvertError, match=r"down_proj_blocks' needs scales, one for each block of 16 bytes$"):
        expert_tensors(match, read_tensors(tmp_path))
