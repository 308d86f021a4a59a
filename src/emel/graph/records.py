"""Packs a fused and placed graph into the records of native/include/emel.h.

Lanes meet after every operation unless the ones behind it touch nothing it writes and write nothing it touches; that is
decided on the placed bytes (a freed buffer may have been given to the next operation), never on values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from emel._native import abi
from emel.graph.attention_ops import Attention, RopeStore
from emel.graph.liveness import storages
from emel.graph.ops import Argmax, Form, RmsNorm
from emel.graph.record_fields import fill_record
from emel.graph.state_ops import ShortConv

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
        fill_record(record, operation, offsets)
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
    elif isinstance(operation, ShortConv):
        writes.append(("state", operation.state_layer, operation.state_layer + 1))
    elif isinstance(operation, Argmax):
        writes.append(("argmax", 0, 1))
    return Access(tuple(reads), tuple(writes))


def _conflict(before: Access, after: Access) -> bool:
    return _meet(before.writes, after.reads) or _meet(before.writes, after.writes) or _meet(before.reads, after.writes)


def _meet(left: tuple[Span, ...], right: tuple[Span, ...]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in left for b in right)
