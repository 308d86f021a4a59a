"""Values as the bytes of a tensor type: by the gguf package where it can, by emel.convert.k_blocks for K-quants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel.convert.errors import ConvertError
from emel.convert.k_blocks import K_TYPES, quantize_k
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_HALF = 65504.0
_WIDE = (TensorType.F32, TensorType.BF16)
"""Types that hold every float32; the others have float16 in them."""


def encode(values: NDArray[np.float32], type_: TensorType, name: str) -> NDArray[np.uint8]:
    """The bytes (n_bytes,) of float32 values (rows, cols) of tensor `name`.

    ConvertError for values that are not finite, or larger than the type can hold.
    """
    largest = float(np.abs(values).max()) if values.size else 0.0
    if not largest < np.inf:
        raise ConvertError(f"tensor {name!r} has values that are not finite: the file is damaged")
    if largest > _LARGEST_HALF and type_ not in _WIDE:
        raise ConvertError(
            f"tensor {name!r} has a value of {largest:g}: {type_.name} holds up to {_LARGEST_HALF:g}",
            hint="F32 and BF16 hold it",
        )
    if type_ in K_TYPES:
        return quantize_k(values, type_)
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    stored = quantize(np.ascontiguousarray(values, dtype=np.float32), GGMLQuantizationType[type_.name])
    return np.ascontiguousarray(stored).view(np.uint8).reshape(-1)
