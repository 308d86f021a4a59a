"""Mixtures of experts of which only those that were chosen are read: the graph is cut behind each router.

A segment ends with a `TopK`, so that who was chosen is known before the segment with the experts runs. The results are
the same bit for bit: an expert that nobody chose is not touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.expert_ops import ExpertLinear, TopK
from emel.graph.ops import Rows
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emel.graph.ops import Graph, Operation, Value, Weight


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts behind one routing: `weights` are matrices (n_experts * rows, cols), expert after expert."""

    routing: Value
    weights: tuple[Weight, ...]

    @property
    def n_experts(self) -> int:
        """Experts there are to choose from."""
        return self.routing.width

    @property
    def n_used(self) -> int:
        """Experts of each row."""
        return self.routing.per_row

    @property
    def is_for_outputs(self) -> bool:
        """Whether only output rows go through it."""
        return self.routing.rows is Rows.OUTPUTS


def cut_behind_routers(graph: Graph) -> Graph:
    """The graph with a segment more behind each router; itself where there is none."""
    n_cuts = 0
    operations: list[Operation] = []
    for operation in graph.operations:
        operations.append(replace(operation, segment=operation.segment + n_cuts) if n_cuts else operation)
        n_cuts += isinstance(operation, TopK)
    return replace(graph, operations=tuple(operations)) if n_cuts else graph


def mixtures_of(operations: Iterable[Operation]) -> tuple[Mixture, ...]:
    """The mixtures whose experts these operations compute, in order."""
    found: dict[Value, list[Weight]] = {}
    for operation in operations:
        if isinstance(operation, ExpertLinear):
            found.setdefault(operation.routing, []).extend(part.weight for part in operation.parts)
    return tuple(Mixture(routing, tuple(weights)) for routing, weights in found.items())
