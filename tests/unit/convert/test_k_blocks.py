"""K-quants: what comes back by the gguf package, against what llama.cpp's own quantiser brings back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from emel.convert.k_blocks import K_TYPES, quantize_k
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from numpy.typing import NDArray

# RMS errors over the RMS of the values below, by ggml_quantize_chunk of llama-cpp-python 0.3.36.
LLAMA_CPP = {
    ("Q4_K", "normal"): 0.07147,
    ("Q4_K", "laplace"): 0.08473,
    ("Q4_K", "shifted"): 0.02402,
    ("Q5_K", "normal"): 0.03619,
    ("Q5_K", "laplace"): 0.04284,
    ("Q5_K", "shifted"): 0.01195,
    ("Q6_K", "normal"): 0.01778,
    ("Q6_K", "laplace"): 0.02176,
    ("Q6_K", "shifted"): 0.01040,
}


def values_of(kind: str) -> NDArray[np.float32]:
    random = np.random.default_rng(0)
    shape = (256, 1024)
    normal, laplace = random.normal(0, 0.02, shape), random.laplace(0, 0.02, shape)
    shifted = random.normal(0.5, 0.1, shape)
    return {"normal": normal, "laplace": laplace, "shifted": shifted}[kind].astype(np.float32)


def came_back(values: NDArray[np.float32], type_: TensorType) -> NDArray[np.float32]:
    stored = quantize_k(values, type_)
    assert stored.dtype == np.uint8
    assert stored.size == type_.n_bytes(values.size // 256, 256)
    rows = stored.reshape(len(values), -1)
    return np.asarray(dequantize(rows, gguf.GGMLQuantizationType[type_.name]))


def relative_error(values: NDArray[np.float32], found: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean((values.astype(np.float64) - found) ** 2) / np.mean(values.astype(np.float64) ** 2)))


@pytest.mark.parametrize(("name", "kind"), LLAMA_CPP)
def test_k_quants_err_less_than_those_of_llama_cpp(name: str, kind: str) -> None:
    values = values_of(kind)
    assert relative_error(values, came_back(values, TensorType[name])) < LLAMA_CPP[name, kind]


@pytest.mark.parametrize("type_", K_TYPES)
def test_every_value_of_a_block_finds_its_place(type_: TensorType) -> None:
    """A block of distinct values in random order, of very different size from sub-block to sub-block."""
    random = np.random.default_rng(1)
    values = (random.permutation(256) - 100.0) * np.repeat(np.arange(1, 9), 32)
    values = np.stack([values, values[::-1]]).astype(np.float32)
    found = came_back(values, type_)
    for block, back in zip(values.reshape(-1, 32), found.reshape(-1, 32), strict=True):
        assert np.corrcoef(block, back)[0, 1] > 0.99


@pytest.mark.parametrize("type_", K_TYPES)
def test_zeros_come_back_as_zeros(type_: TensorType) -> None:
    assert not came_back(np.zeros((2, 512), dtype=np.float32), type_).any()


@pytest.mark.parametrize("type_", K_TYPES)
@pytest.mark.parametrize("value", [-0.3, 0.3, 1000.0])
def test_equal_values_come_back(type_: TensorType, value: float) -> None:
    values = np.full((1, 256), value, dtype=np.float32)
    assert came_back(values, type_) == pytest.approx(values, rel=0.02)


@pytest.mark.parametrize("type_", K_TYPES)
def test_values_too_small_for_a_scale_become_zeros(type_: TensorType) -> None:
    found = came_back(np.random.default_rng(0).normal(0, 1e-9, (1, 256)).astype(np.float32), type_)
    assert np.abs(found).max() < 1e-6


def test_no_values_give_no_bytes() -> None:
    assert quantize_k(np.zeros((0, 256), dtype=np.float32), TensorType.Q4_K).size == 0


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^Q8_0 is none of Q4_K, Q5_K, Q6_K$"):
        quantize_k(np.zeros((1, 256), dtype=np.float32), TensorType.Q8_0)


def test_blocks_do_not_depend_on_their_neighbours() -> None:
    values = values_of("laplace")
    together = quantize_k(values, TensorType.Q4_K)
    alone = np.concatenate([quantize_k(row, TensorType.Q4_K) for row in values[:8]])
    assert np.array_equal(together[: alone.size], alone)
