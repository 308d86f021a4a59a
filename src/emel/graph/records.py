"""Packs a fused and placed graph into the records of native/include/emel.h.

Lanes meet after every operation unless the ones behind it touch nothing it writes and write nothing it touches; that is
decided on the placed bytes (a freed buffer may have been given to the next operation), never on values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emel._native import abi
from emel.graph.errors import GraphError
from emel.graph.liveness import storages
from emel.graph.ops import (
    Add,
    Argmax,
    Attention,
    Embed,
    Form,
    Gated,
    Gather,
    Linear,
    Quantize,
    RmsNorm,
    RopeStore,
    RopeTable,
    Rows,
)

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterator

    from emel.graph.allocator import Placement
    from emel.graph.ops import Graph, Operation, Value

Span = tuple[str, int, int]  # (memory, begin, end)


class Access(NamedTuple):
    """The memory an operation reads and writes."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


def pack_records(graph: Graph, placement: Placement, n_bytes: dict[int, int]) -> ctypes.Array[abi.Op]:
    """One record for each operation, in order; GraphError for an operation no kernel runs."""
    storage = storages(graph)
    offsets = {index: placement.offsets[where] for index, where in storage.items()}
    records = (abi.Op * len(graph.operations))()
    for record, operation in zip(records, graph.operations, strict=True):
        _fill(record, operation, offsets)
    accesses = [access_of(operation, offsets, n_bytes) for operation in graph.operations]
    for index in unmet(accesses):
        records[index].flags |= abi.OpFlag.NO_BARRIER
    return records


def unmet(accesses: list[Access]) -> Iterator[int]:
    """Indices of operations after which lanes need not meet."""
    open_accesses: list[Access] = []  # of the operations since lanes last met
    for index, access in enumerate(accesses[:-1]):
        open_accesses.append(access)
        if any(_conflict(before, accesses[index + 1]) for before in open_accesses):
            open_accesses.clear()
        else:
            yield index


def access_of(operation: Operation, offsets: dict[int, int], n_bytes: dict[int, int]) -> Access:
    """The arena bytes an operation touches, and what it touches outside: KV cache, logits and the batch's results."""

    def span(value: Value) -> Span:
        if value.form is Form.LOGITS:
            return ("logits", 0, 1)
        begin = offsets[value.index]
        return ("arena", begin, begin + n_bytes[value.index])

    reads = [span(value) for value in operation.inputs()]
    writes = [span(value) for value in (*operation.outputs(), *operation.spoils())]
    if isinstance(operation, RopeStore):
        writes.append(("kv", 0, 1))
    elif isinstance(operation, Attention):
        reads.append(("kv", 0, 1))
    elif isinstance(operation, RmsNorm):
        writes.append(("bad_layer", 0, 1))
    elif isinstance(operation, Argmax):
        writes.append(("argmax", 0, 1))
    return Access(tuple(reads), tuple(writes))


def _conflict(before: Access, after: Access) -> bool:
    return _meet(before.writes, after.reads) or _meet(before.writes, after.writes) or _meet(before.reads, after.writes)


def _meet(left: tuple[Span, ...], right: tuple[Span, ...]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in left for b in right)


def _fill(record: abi.Op, operation: Operation, offsets: dict[int, int]) -> None:
    record.layer = operation.layer
    record.segment = operation.segment
    for index in range(4):
        record.in_[index] = record.out[index] = abi.NONE
    for index in range(8):
        record.weight[index] = abi.NO_WEIGHT
    if not isinstance(operation, Gather) and any(
        value.rows is Rows.OUTPUTS for value in (*operation.inputs(), *operation.outputs())
    ):
        record.flags |= abi.OpFlag.OUTPUT_ROWS
    if isinstance(operation, RopeStore | Attention):
        _fill_attention(record, operation, offsets)
    elif isinstance(operation, Linear):
        _fill_linear(record, operation, offsets)
    elif isinstance(operation, Embed | RopeTable):
        _fill_source(record, operation, offsets)
    else:
        _fill_rowwise(record, operation, offsets)


def _fill_source(record: abi.Op, operation: Embed | RopeTable, offsets: dict[int, int]) -> None:
    record.out[0] = offsets[operation.out.index]
    if isinstance(operation, Embed):
        record.kind = abi.OpKind.EMBED
        record.weight[0] = operation.weight.index
        record.param[0] = operation.scale
    else:
        record.kind = abi.OpKind.ROPE_TABLE
        record.weight[0] = operation.frequencies.index
        record.param[0] = operation.magnitude


def _fill_linear(record: abi.Op, operation: Linear, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.MATMUL
    record.in_[0] = offsets[operation.x.index]
    record.dim[0] = operation.x.width
    record.dim[1] = len(operation.parts)
    record.param[0], record.param[1] = operation.scale, operation.cap
    for index, part in enumerate(operation.parts):
        record.out[index] = abi.LOGITS if part.out.form is Form.LOGITS else offsets[part.out.index]
        record.weight[index] = part.weight.index
        if part.bias is not None:
            record.weight[abi.MAX_PARTS + index] = part.bias.index


def _fill_attention(record: abi.Op, operation: RopeStore | Attention, offsets: dict[int, int]) -> None:
    heads = operation.heads
    record.dim[0], record.dim[1], record.dim[2] = heads.n_heads, heads.n_kv_heads, heads.head_dim
    record.in_[0] = offsets[operation.q.index]
    if isinstance(operation, RopeStore):
        record.kind = abi.OpKind.ROPE_STORE
        record.in_[1] = offsets[operation.k.index]
        record.in_[2] = offsets[operation.v.index]
        if operation.table is not None:
            record.in_[3] = offsets[operation.table.index]
            record.dim[3] = operation.table.width
        for index, norm in enumerate((operation.q_norm, operation.k_norm)):
            if norm is not None:
                record.weight[index] = norm.index
        record.param[0] = operation.epsilon
        record.dim[4] = operation.pairing.value
        record.dim[5] = operation.kv_layer
    else:
        record.kind = abi.OpKind.ATTENTION
        record.in_[1] = offsets[operation.scratch.index]
        record.out[0] = offsets[operation.out.index]
        record.dim[3] = operation.kv_layer
        record.dim[4] = operation.window
        record.dim[5] = int(not operation.is_causal)
        record.param[0], record.param[1] = operation.scale, operation.cap
        if operation.sinks is not None:
            record.weight[0] = operation.sinks.index


def _fill_rowwise(record: abi.Op, operation: Operation, offsets: dict[int, int]) -> None:
    if isinstance(operation, RmsNorm | Gated):
        for index, value in enumerate((operation.out, operation.quantized)):
            if value is not None:
                record.out[index] = offsets[value.index]
    if isinstance(operation, RmsNorm):
        record.kind = abi.OpKind.RMS_NORM
        record.in_[0] = offsets[operation.x.index]
        if operation.delta is not None:
            record.in_[1] = offsets[operation.delta.index]
        record.weight[0] = operation.weight.index
        record.dim[0] = operation.x.width
        record.param[0], record.param[1] = operation.epsilon, operation.delta_scale
    elif isinstance(operation, Add):
        record.kind = abi.OpKind.ADD
        record.in_[0] = offsets[operation.stream.index]
        record.in_[1] = offsets[operation.delta.index]
        if operation.gate is not None:
            record.in_[2] = offsets[operation.gate.index]
        record.out[0] = offsets[operation.out.index]
        record.dim[0] = operation.stream.width
        record.param[0] = operation.scale
    elif isinstance(operation, Gated):
        record.kind = abi.OpKind.GATED
        record.in_[0] = offsets[operation.gate.index]
        if operation.up is not None:
            record.in_[1] = offsets[operation.up.index]
        record.dim[0] = operation.gate.width
        record.dim[1] = operation.activation.value
        record.param[0], record.param[1] = operation.alpha, operation.limit
    elif isinstance(operation, Quantize | Gather):
        record.kind = abi.OpKind.QUANTIZE if isinstance(operation, Quantize) else abi.OpKind.GATHER
        record.in_[0] = offsets[operation.x.index]
        record.out[0] = offsets[operation.out.index]
        record.dim[0] = operation.x.width
    elif isinstance(operation, Argmax):
        record.kind = abi.OpKind.ARGMAX
        record.dim[0] = operation.logits.width
    else:
        raise GraphError(f"no kernel runs {type(operation).__name__}")
