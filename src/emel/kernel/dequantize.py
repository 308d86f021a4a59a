"""Dequantisation of GGUF rows to float32, exactly as the format defines."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from emel._native import LIBRARY, check
from emel._native import abi as _abi  # noqa: F401 - declares the prototypes
from emel.kernel.buffers import address_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from emel.tensor.types import TensorType


def dequantize(type: TensorType, data: Buffer, n: int) -> array[float]:  # noqa: A002 - the field's own name
    """(n,) float32 from `data`, whole blocks of a GGUF type. ValueError when `data` has another size."""
    with memoryview(data) as view:
        n_bytes = view.nbytes
    if n < 0 or n_bytes != type.row_bytes(n):
        raise ValueError(f"{n_bytes} bytes of {type.name} for {n} values: {type.row_bytes(max(n, 0))} are needed")
    values = array("f", bytes(4 * n))
    if n:
        check(LIBRARY.emel_dequantize(int(type), address_of(data), n_bytes, address_of(values), n))
    return values
