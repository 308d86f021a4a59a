"""A plan of a few records through the C ABI alone: its weights, its arena, its batch.

plan = SmallPlan(isa)
x, out = plan.place(4 * 32), plan.place(plan.record_bytes(32))
plan.add(OpKind.QUANTIZE, in_=[x], out=[out], dim=[32])
plan.create()
plan.write(x, values)
plan.run(pool)
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from emel._native import LIBRARY, abi, check
from emel.tensor.types import TensorType
from native.activations import BLOCK, RADIX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from emel.kernel.pool import LanePool

SCALAR = int(abi.Isa.SCALAR)


def aligned_bytes(n_bytes: int, fill: int = 0) -> NDArray[np.uint8]:
    """(n_bytes,) at an address that is a multiple of 64."""
    memory = np.full(n_bytes + abi.ALIGNMENT, fill, np.uint8)
    begin = -memory.ctypes.data % abi.ALIGNMENT
    return memory[begin : begin + n_bytes]


def int32(values: ArrayLike) -> NDArray[np.int32]:
    """A contiguous int32 array."""
    return np.ascontiguousarray(values, np.int32)


def make_op(kind: int, **fields: Any) -> abi.Op:
    """A record: lists fill the front of in_, out, dim and param; weight maps slots to indices."""
    op = abi.Op(kind=kind)
    for index in range(4):
        op.in_[index] = op.out[index] = abi.NONE
    for index in range(8):
        op.weight[index] = abi.NO_WEIGHT
    for name, value in fields.items():
        if isinstance(value, dict):
            for index, item in value.items():
                getattr(op, name)[index] = item
        elif isinstance(value, list):
            for index, item in enumerate(value):
                getattr(op, name)[index] = item
        else:
            setattr(op, name, value)
    return op


class SmallPlan:
    """See the file's header. Arrays the library points into are kept alive here."""

    def __init__(self, isa: int = SCALAR, **desc: int) -> None:
        self.desc = abi.PlanDesc(max_tokens=1, max_outputs=1, max_sequences=1, n_blocks=8, n_vocab=8, isa=isa)
        self.desc.kv_type = TensorType.F16
        for name, value in desc.items():
            setattr(self.desc, name, value)
        self.ops: list[abi.Op] = []
        self.weights: list[abi.Weight] = []
        self.arrays: list[NDArray[Any]] = []
        self.arena = aligned_bytes(0)
        self.kv = aligned_bytes(0)
        self.state = aligned_bytes(0)
        self.handle = ctypes.c_void_p()

    # ---- building

    def place(self, n_bytes: int) -> int:
        """The arena offset of a new buffer."""
        offset = int(self.desc.arena_bytes)
        self.desc.arena_bytes += -(-n_bytes // abi.ALIGNMENT) * abi.ALIGNMENT
        return offset

    def record_bytes(self, n: int) -> int:
        """Bytes of one quantised row of n values."""
        return int(LIBRARY.emel_quantized_bytes(n, self.desc.activations))

    def add(self, kind: abi.OpKind, **fields: Any) -> abi.Op:
        """Appends a record (make_op)."""
        op = make_op(int(kind), **fields)
        self.ops.append(op)
        return op

    def vector(self, values: ArrayLike, dtype: DTypeLike = np.float32) -> int:
        """The index of a plain vector."""
        array = np.ascontiguousarray(values, dtype)
        self.arrays.append(array)
        type_ = 28 if array.dtype == np.float64 else 0
        self.weights.append(abi.Weight(array.ctypes.data, array.nbytes, 1, array.size, type_, 0))
        return len(self.weights) - 1

    def matrix(self, pool: LanePool, type_: TensorType, raw: bytes, rows: int, cols: int) -> int:
        """The index of a packed matrix, from GGUF rows."""
        n_bytes = ctypes.c_uint64()
        check(LIBRARY.emel_pack_size(int(type_), rows, cols, n_bytes))
        packed = aligned_bytes(n_bytes.value)
        source = np.frombuffer(raw, np.uint8)
        job = abi.PackJob(
            source.ctypes.data, source.nbytes, packed.ctypes.data, packed.nbytes, rows, cols, int(type_), 0
        )
        check(LIBRARY.emel_pack(pool.handle, job, 1))
        self.arrays.append(packed)
        self.weights.append(abi.Weight(packed.ctypes.data, packed.nbytes, rows, cols, int(type_), 1))
        return len(self.weights) - 1

    def try_create(self) -> int:
        """The status of emel_plan_create."""
        ops = (abi.Op * len(self.ops))(*self.ops)
        self.desc.max_sequence_blocks = self.desc.max_sequence_blocks or self.desc.n_blocks
        weights = (abi.Weight * len(self.weights))(*self.weights)
        self.desc.ops, self.desc.n_ops = ops, len(ops)
        self.desc.weights, self.desc.n_weights = weights, len(weights)
        return int(LIBRARY.emel_plan_create(self.desc, ctypes.byref(self.handle)))

    def create(self) -> None:
        """Makes the plan, a zeroed arena, and a KV cache full of NaN: what was not stored must not be read."""
        check(self.try_create())
        d = self.desc
        self.arena = aligned_bytes(int(d.arena_bytes))
        kv_bytes = LIBRARY.emel_kv_bytes(d.n_kv_layers, d.n_blocks, d.n_kv_heads, d.head_dim, d.kv_type)
        self.kv = aligned_bytes(kv_bytes, fill=0xFF)
        self.state = aligned_bytes(LIBRARY.emel_state_bytes(d.n_state_layers, d.state_width, d.n_slots), fill=0xFF)

    # ---- running

    def write(self, offset: int, values: ArrayLike, dtype: DTypeLike = np.float32) -> None:
        """Puts values at an arena offset."""
        raw = np.ascontiguousarray(values, dtype).view(np.uint8).ravel()
        self.arena[offset : offset + raw.size] = raw

    def read(self, offset: int, shape: Sequence[int], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """A copy of the values at an arena offset."""
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.arena[offset : offset + n_bytes].view(dtype).reshape(shape).copy()

    def read_records(self, offset: int, n_rows: int, n: int) -> NDArray[np.uint8]:
        """(n_rows, bytes) quantised rows of n values, their planes apart whatever the route."""
        records = self.read(offset, (n_rows, self.record_bytes(n)), np.uint8)
        if self.desc.isa == abi.Isa.AVX2 and self.desc.activations == abi.Activations.INT16:
            n_values = -(-n // BLOCK) * BLOCK
            fours = records[:, : 2 * n_values].copy().view(np.int16).reshape(n_rows, -1, 4)
            q = fours[..., [0, 2, 1, 3]].reshape(n_rows, n_values)
            high = np.rint(q / RADIX).astype(np.int16)
            records[:, :n_values] = high.astype(np.int8).view(np.uint8)
            records[:, n_values : 2 * n_values] = (q - RADIX * high).astype(np.int8).view(np.uint8)
        return records

    def batch(self, n_tokens: int = 1, **arrays: ArrayLike) -> SmallBatch:
        """A batch of this plan; tokens 0.. of sequence 0 unless other arrays are given."""
        return SmallBatch(self, n_tokens, arrays)

    def run(self, pool: LanePool, n_tokens: int = 1, **arrays: ArrayLike) -> SmallBatch:
        """Runs a batch and returns it with its results."""
        batch = self.batch(n_tokens, **arrays)
        check(LIBRARY.emel_plan_run(self.handle, pool.handle, batch.record, None))
        return batch

    def close(self) -> None:
        """Destroys the native plan."""
        LIBRARY.emel_plan_destroy(self.handle)
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SmallBatch:
    """The arrays of one run, and the native struct that points at them."""

    def __init__(self, plan: SmallPlan, n_tokens: int, given: dict[str, ArrayLike]) -> None:
        d = plan.desc
        self.arrays = {
            "tokens": int32(np.zeros(n_tokens)),
            "positions": int32(np.arange(n_tokens)),
            "sequences": int32(np.zeros(n_tokens)),
            "block_table": int32(np.arange(max(d.n_blocks, 1))[None]),
            "output_rows": int32([]),
            **{name: int32(values) for name, values in given.items()},
        }
        n_outputs = len(self.arrays["output_rows"])
        self.logits = np.zeros((n_outputs, d.n_vocab), np.float32)
        self.argmax = int32(np.full(n_outputs, -7))
        self.bad_layer = int32(np.full(n_tokens, -7))
        table = self.arrays["block_table"]
        self.record = abi.Batch(
            arena=plan.arena.ctypes.data,
            arena_bytes=plan.arena.nbytes,
            kv=plan.kv.ctypes.data if plan.kv.nbytes else None,
            kv_bytes=plan.kv.nbytes,
            state=plan.state.ctypes.data if plan.state.nbytes else None,
            state_bytes=plan.state.nbytes,
            logits=self.logits.ctypes.data,
            argmax=self.argmax.ctypes.data,
            bad_layer=self.bad_layer.ctypes.data,
            n_tokens=n_tokens,
            n_sequences=table.shape[0],
            n_outputs=n_outputs,
            block_stride=table.shape[1],
            segment_end=2**32 - 1,
            **{name: values.ctypes.data for name, values in self.arrays.items()},
        )


def quantized_rows(values: NDArray[np.float32], type_: TensorType) -> tuple[bytes, NDArray[np.float64]]:
    """(rows, cols) as GGUF bytes of a type, and what those bytes mean by the gguf package."""
    kind = gguf.GGMLQuantizationType(int(type_))
    raw = gguf.quants.quantize(values, kind)
    meant = gguf.quants.dequantize(raw.view(np.uint8), kind).reshape(values.shape)
    return raw.tobytes(), meant.astype(np.float64)
