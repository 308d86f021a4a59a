"""The tensor descriptions of a file."""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING

from emel.gguf.errors import GgufError, quoted
from emel.lazy_dataclasses import dataclass
from emel.tensor.types import TensorType, TensorTypeError

if TYPE_CHECKING:
    from emel.gguf.cursor import Cursor

MAX_DIMENSIONS = 4
# "It must be a standard GGUF string, with the caveat that it must be at most 64 bytes long."
# https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
MAX_NAME_BYTES = 64
_INT64_MAX = 2**63 - 1
# sizes, type id, offset, by the number of dimensions
_PLACES = {n: struct.Struct(f"<{n}QIQ") for n in range(1, MAX_DIMENSIONS + 1)}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` in NumPy order (rows, cols), `offset` in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    n_bytes: int
    part: int = 0  # the file of a split model it lies in

    @property
    def cols(self) -> int:
        """Values in a row (the fastest dimension)."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows over all the other dimensions; 1 for a vector."""
        return prod(self.shape[:-1])

    @property
    def n_values(self) -> int:
        """Values of all rows."""
        return self.rows * self.cols

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.offset + self.n_bytes


def read_tensors(cursor: Cursor, n_tensors: int) -> list[TensorInfo]:
    """Takes n_tensors descriptions; their offsets are still relative to the data section."""
    names: set[str] = set()
    tensors: list[TensorInfo] = []
    for index in range(n_tensors):
        name = _take_name(cursor, index, n_tensors)
        if name in names:
            raise GgufError(f"tensor {quoted(name)} occurs twice: names must be unique")
        names.add(name)
        tensors.append(_take_tensor(cursor, name))
    return tensors


def _take_name(cursor: Cursor, index: int, n_tensors: int) -> str:
    what = f"the name of tensor {index + 1} of {n_tensors}"
    n_bytes = cursor.take_u64(what)
    if not 1 <= n_bytes <= MAX_NAME_BYTES:
        raise GgufError(f"{what} has {n_bytes} bytes: allowed are 1 to {MAX_NAME_BYTES}")
    return cursor.take_text(n_bytes, what)


def _take_tensor(cursor: Cursor, name: str) -> TensorInfo:
    what = f"tensor {quoted(name)}"
    n_dimensions = cursor.take_u32(f"the number of dimensions of {what}")
    if not 1 <= n_dimensions <= MAX_DIMENSIONS:
        raise GgufError(f"{what} has {n_dimensions} dimensions: allowed are 1 to {MAX_DIMENSIONS}")
    *sizes, type_id, offset = cursor.take_fields(_PLACES[n_dimensions], f"the shape, type and offset of {what}")
    shape = tuple(reversed(sizes))
    _check_shape(what, shape)
    try:
        tensor_type = TensorType.from_id(type_id)
        n_bytes = tensor_type.n_bytes(prod(shape[:-1]), shape[-1])
    except TensorTypeError as error:
        raise GgufError(f"{what}: {error}") from None
    if n_bytes > _INT64_MAX:
        raise GgufError(f"{what} of shape {shape} has {n_bytes} bytes, more than 2^63-1: the file is damaged")
    return TensorInfo(name, shape, tensor_type, offset, n_bytes)


def _check_shape(what: str, shape: tuple[int, ...]) -> None:
    for size in shape:
        if not 1 <= size <= _INT64_MAX:
            raise GgufError(f"{what} has a dimension of {size}: allowed are 1 to 2^63-1")
    if prod(shape) > _INT64_MAX:
        raise GgufError(f"{what} of shape {shape} has more than 2^63-1 elements: the file is damaged")
