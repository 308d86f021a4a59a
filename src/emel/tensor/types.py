"""Tensor types of GGUF files and the geometry of their blocks.

A row of a tensor is a whole number of blocks; a block holds `block_elements` values in `block_bytes` bytes.
Ids and sizes: ggml's `ggml_type` enumeration, https://github.com/ggml-org/ggml/blob/master/include/ggml.h
"""

from __future__ import annotations

from enum import IntEnum

from emel.tensor.foreign import describe_foreign_id


class TensorTypeError(ValueError):
    """A type id EMEL does not read, or a shape its blocks cannot hold."""


class TensorType(IntEnum):
    """GGUF's own ids of the tensor types that exist in current files."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    @classmethod
    def from_id(cls, type_id: int) -> TensorType:
        """The type with this id; TensorTypeError names removed ids and those of other projects."""
        try:
            return cls(type_id)
        except ValueError:
            raise TensorTypeError(describe_foreign_id(type_id)) from None

    @property
    def block_elements(self) -> int:
        """Values in a block."""
        return _GEOMETRY[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return _GEOMETRY[self][1]

    @property
    def is_quantized(self) -> bool:
        """Whether several values share a block (and its scale)."""
        return _GEOMETRY[self][0] > 1

    def row_bytes(self, cols: int) -> int:
        """Bytes of a row of `cols` values; TensorTypeError unless that is a whole number of blocks."""
        elements, n_bytes = _GEOMETRY[self]
        if cols < 0 or cols % elements:
            raise TensorTypeError(f"a row of {cols} values is not a multiple of {self.name}'s block of {elements}")
        return cols // elements * n_bytes

    def n_bytes(self, rows: int, cols: int) -> int:
        """Bytes of a (rows, cols) matrix; TensorTypeError unless a row is a whole number of blocks."""
        if rows < 0:
            raise TensorTypeError(f"a matrix cannot have {rows} rows")
        return rows * self.row_bytes(cols)


# Values and bytes of one block of each type.
_GEOMETRY: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    # scale and sum as float16; the float32 form of 40 bytes was never written to files
    TensorType.Q8_1: (32, 36),
    TensorType.Q2_K: (256, 84),
    TensorType.Q3_K: (256, 110),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.Q8_K: (256, 292),
    TensorType.IQ2_XXS: (256, 66),
    TensorType.IQ2_XS: (256, 74),
    TensorType.IQ3_XXS: (256, 98),
    TensorType.IQ1_S: (256, 50),
    TensorType.IQ4_NL: (32, 18),
    TensorType.IQ3_S: (256, 110),
    TensorType.IQ2_S: (256, 82),
    TensorType.IQ4_XS: (256, 136),
    TensorType.I8: (1, 1),
    TensorType.I16: (1, 2),
    TensorType.I32: (1, 4),
    TensorType.I64: (1, 8),
    TensorType.F64: (1, 8),
    TensorType.IQ1_M: (256, 56),
    TensorType.BF16: (1, 2),
    TensorType.TQ1_0: (256, 54),
    TensorType.TQ2_0: (256, 66),
    TensorType.MXFP4: (32, 17),
    TensorType.NVFP4: (64, 36),
    TensorType.Q1_0: (128, 18),
}
