"""When each storage of a graph is in use: from the operation that first writes it to the last that touches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.ops import Form
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.graph.ops import Graph, Value


@dataclass(frozen=True, slots=True)
class Interval:
    """A storage of `n_bytes` in use during operations `first` to `last`, both included."""

    storage: int
    first: int
    last: int
    n_bytes: int


def storages(graph: Graph) -> dict[int, int]:
    """Value index -> storage: values updated in place share the storage of the first; logits have none."""
    storage: dict[int, int] = {}
    for operation in graph.operations:
        taken = {written.index: read.index for written, read in operation.in_place()}
        for value in operation.outputs():
            if value.form is not Form.LOGITS:
                storage[value.index] = storage[taken[value.index]] if value.index in taken else value.index
    return storage


def live_intervals(graph: Graph, n_bytes: dict[int, int]) -> list[Interval]:
    """One interval for each storage, in order of first use; `n_bytes` gives the size of each value by its index."""
    storage = storages(graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}

    def touch(value: Value, at: int) -> None:
        if value.index in storage:
            where = storage[value.index]
            first.setdefault(where, at)
            last[where] = at
            size[where] = max(size.get(where, 0), n_bytes[value.index])

    for at, operation in enumerate(graph.operations):
        for value in operation.inputs():
            touch(value, at)
        for value in operation.outputs():
            touch(value, at)
    return [Interval(where, first[where], last[where], size[where]) for where in first]


def peak_bytes(intervals: list[Interval]) -> int:
    """The largest sum of sizes in use at one operation: no placement needs less."""
    changes: dict[int, int] = {}
    for interval in intervals:
        changes[interval.first] = changes.get(interval.first, 0) + interval.n_bytes
        changes[interval.last + 1] = changes.get(interval.last + 1, 0) - interval.n_bytes
    peak = current = 0
    for at in sorted(changes):
        current += changes[at]
        peak = max(peak, current)
    return peak
