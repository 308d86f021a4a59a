from __future__ import annotations

import gguf
import numpy as np
import pytest

from emel._native import NativeError
from emel.kernel.dequantize import dequantize
from emel.tensor.types import TensorType

TYPES = [TensorType.F32, TensorType.F16, TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("n", [32, 96, 1024])
def test_dequantize_equals_the_gguf_package(type_: TensorType, n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(type_)))
    expected = gguf.quants.dequantize(raw.view(np.uint8), gguf.GGMLQuantizationType(int(type_)))
    got = np.array(dequantize(type_, raw.tobytes(), n), np.float32)
    assert np.array_equal(got, expected.astype(np.float32).ravel())


def test_dequantize_nothing_is_nothing() -> None:
    assert len(dequantize(TensorType.F32, b"", 0)) == 0


def test_dequantize_needs_the_bytes_of_the_values() -> None:
    with pytest.raises(ValueError, match="33 bytes of Q8_0 for 32 values: 34 are needed"):
        dequantize(TensorType.Q8_0, bytes(33), 32)
    with pytest.raises(ValueError, match="not a multiple of Q8_0's block of 32"):
        dequantize(TensorType.Q8_0, bytes(34), 31)


def test_dequantize_refuses_types_without_a_kernel() -> None:
    with pytest.raises(NativeError):
        dequantize(TensorType.NVFP4, bytes(36), 64)
