"""Rewrites a graph into what the kernels run: fewer passes over memory, the same results bit for bit.

1. A sum moves into the norm that reads it first.
2. Linears in a row that read one value become one job of up to four parts of one kind (q/k/v, gate/up).
3. A value read by block-type matrices is quantised once, by the norm or gate that writes it where there is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.expert_ops import ExpertLinear, ExpertRows
from emel.graph.ops import Add, Form, Gated, Linear, Quantize, RmsNorm, Value
from emel.graph.spec import MAX_PARTS

if TYPE_CHECKING:
    from emel.graph.ops import Graph, Operation


def fuse(graph: Graph) -> Graph:
    """The graph with all three rewrites applied; graph/spec.py's PLAN_RULES say whether it can be planned."""
    values = list(graph.values)
    operations = _fold_sums(list(graph.operations))
    operations = _group_blocks(_join_linears(operations), values)
    operations = _quantize_once(operations, values)
    return replace(graph, operations=tuple(operations), values=tuple(values))


def _fold_sums(operations: list[Operation]) -> list[Operation]:
    folded: list[Operation] = []
    pending: dict[Value, Add] = {}
    for operation in operations:
        used = [pending.pop(value) for value in operation.inputs() if value in pending]
        if isinstance(operation, RmsNorm) and used and operation.delta is None:
            (add,) = used
            folded.append(replace(operation, x=add.stream, delta=add.delta, delta_scale=add.scale, total=add.out))
            continue
        # No norm reads them first: they are made where they are wanted.
        folded.extend(replace(add, segment=operation.segment) for add in used)
        if isinstance(operation, Add) and operation.gate is None:
            pending[operation.out] = operation
        else:
            folded.append(operation)
    return [*folded, *pending.values()]


def _join_linears(operations: list[Operation]) -> list[Operation]:
    joined: list[Operation] = []
    for operation in operations:
        before = joined[-1] if joined else None
        if isinstance(operation, Linear) and isinstance(before, Linear) and _can_join(before, operation):
            joined[-1] = replace(before, parts=before.parts + operation.parts)
        else:
            joined.append(operation)
    return joined


def _can_join(first: Linear, second: Linear) -> bool:
    parts = first.parts + second.parts
    return (
        type(first) is type(second)
        and list(first.inputs()) == list(second.inputs())
        and first.x == second.x
        and (first.scale, first.cap, second.scale, second.cap) == (1.0, 0.0, 1.0, 0.0)
        and first.begin is None
        and second.begin is None
        and first.segment == second.segment
        and len(parts) <= MAX_PARTS
        and len({part.weight.type.is_quantized for part in parts}) == 1
        and all(part.out.form is Form.F32 for part in parts)
    )


def _reads_blocks(operation: Operation) -> bool:
    """Whether it is a linear of block-type matrices whose input is not quantised yet."""
    return (
        isinstance(operation, Linear) and operation.x.form is Form.F32 and operation.parts[0].weight.type.is_quantized
    )


def _group_blocks(operations: list[Operation], values: list[Value]) -> list[Operation]:
    """Rows that only block-type experts read are quantised before they are grouped, not once for each expert."""
    readers: dict[Value, list[Operation]] = {}
    for operation in operations:
        for value in operation.inputs():
            readers.setdefault(value, []).append(operation)
    grouped: dict[Value, Value] = {}
    rewritten: list[Operation] = []
    for operation in operations:
        if isinstance(operation, ExpertRows) and all(map(_reads_blocks, readers.get(operation.out, [operation]))):
            x, out = operation.x, operation.out
            blocks = Value(len(values), f"{x.name}.q", x.rows, x.width, Form.QUANTIZED)
            grouped[out] = Value(len(values) + 1, f"{out.name}.q", out.rows, out.width, Form.QUANTIZED, out.per_row)
            values += [blocks, grouped[out]]
            where = {"layer": operation.layer, "segment": operation.segment}
            rewritten.append(Quantize(x=x, out=blocks, **where))
            rewritten.append(replace(operation, x=blocks, out=grouped[out]))
        elif isinstance(operation, ExpertLinear) and operation.x in grouped:
            rewritten.append(replace(operation, x=grouped[operation.x]))
        else:
            rewritten.append(operation)
    return rewritten


def _quantize_once(operations: list[Operation], values: list[Value]) -> list[Operation]:
    wanted = {operation.x for operation in operations if isinstance(operation, Linear) and _reads_blocks(operation)}
    plain = {value for operation in operations if not _reads_blocks(operation) for value in operation.inputs()}
    quantized: dict[Value, Value] = {}
    for value in sorted(wanted, key=lambda each: each.index):
        blocks = Value(len(values), f"{value.name}.q", value.rows, value.width, Form.QUANTIZED, value.per_row)
        quantized[value] = blocks
        values.append(blocks)
    rewritten: list[Operation] = []
    written: set[Value] = set()
    for operation in operations:
        if isinstance(operation, RmsNorm | Gated) and operation.out in quantized:
            blocks = quantized[operation.out]
            written.add(blocks)
            out = operation.out if operation.out in plain else None
            rewritten.append(replace(operation, out=out, quantized=blocks))
        elif isinstance(operation, Linear) and _reads_blocks(operation):
            blocks = quantized[operation.x]
            if blocks not in written:
                written.add(blocks)
                where = {"layer": operation.layer, "segment": operation.segment}
                rewritten.append(Quantize(x=operation.x, out=blocks, **where))
            rewritten.append(replace(operation, x=blocks))
        else:
            rewritten.append(operation)
    return rewritten
