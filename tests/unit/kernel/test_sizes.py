from __future__ import annotations

import pytest

from emel._native import NativeError
from emel.kernel.numerics import Activations
from emel.kernel.packing import PACKABLE
from emel.kernel.sizes import (
    ALIGNMENT,
    ROW_GROUP,
    aligned,
    attention_scratch_bytes,
    kv_bytes,
    packed_bytes,
    quantized_bytes,
)
from emel.tensor.types import TensorType


def test_aligned_rounds_up() -> None:
    assert [aligned(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
    assert ALIGNMENT == 64


@pytest.mark.parametrize("type_", PACKABLE)
def test_packed_bytes_pad_rows_to_whole_groups(type_: TensorType) -> None:
    assert packed_bytes(type_, 1, 512) == packed_bytes(type_, ROW_GROUP, 512)
    assert packed_bytes(type_, ROW_GROUP + 1, 512) == 2 * packed_bytes(type_, ROW_GROUP, 512)
    assert packed_bytes(type_, 16, 512) >= type_.n_bytes(16, 512)


def test_packed_bytes_refuses_types_and_rows_it_cannot_hold() -> None:
    with pytest.raises(NativeError):
        packed_bytes(TensorType.NVFP4, 16, 256)
    with pytest.raises(NativeError):
        packed_bytes(TensorType.Q8_0, 16, 33)
    with pytest.raises(NativeError):
        packed_bytes(TensorType.F32, 2**62, 2**62)


def test_sizes_grow_with_what_they_hold() -> None:
    for kind in Activations:
        assert quantized_bytes(64, kind) > quantized_bytes(32, kind) >= 32
    assert quantized_bytes(4096, Activations.INT16) == quantized_bytes(4096, Activations.INT8) + 4096
    assert kv_bytes(2, 4, 1, 64) == 2 * kv_bytes(1, 4, 1, 64)
    assert kv_bytes(1, 1, 1, 64) >= 2 * 16 * 64 * 2
    assert attention_scratch_bytes(8, 4, 2, 64, 128) >= attention_scratch_bytes(1, 4, 2, 64, 1) > 0


@pytest.mark.parametrize("sizes", [(2**40, 2**40, 8, 64), (0, 1, 1, 64)])
def test_kv_bytes_names_what_has_no_size(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=f"no size for a KV cache of {sizes[0]} layers, {sizes[1]} blocks"):
        kv_bytes(*sizes)
