"""Segments smaller than a layer, so that matrices of one layer can be streamed one after the other.

The results are the same bit for bit: products that one job would compute together are computed one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from emel.graph.ops import Graph, Operation


def cut_before(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with a new segment where a weight of `names` is read first; itself where that is no cut."""
    left = set(names)
    n_cuts = 0
    operations: list[Operation] = []
    for operation in graph.operations:
        read = left.intersection(weight.name for weight in operation.weights())
        left -= read
        # The first operation of a segment begins it already.
        n_cuts += bool(read) and bool(operations) and operations[-1].segment == operation.segment + n_cuts
        operations.append(replace(operation, segment=operation.segment + n_cuts) if n_cuts else operation)
    return replace(graph, operations=tuple(operations)) if n_cuts else graph
