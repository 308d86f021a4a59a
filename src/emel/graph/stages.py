"""Stages: the segments of a plan whose weights are streamed, in runs between which a unit of weights is acquired.

A stage is one native call: the segment that reads a unit and the segments behind it whose weights stay in memory. So a
batch of any number of tokens and sequences reads every unit once. Experts that are read when they were chosen begin a
stage as well: the one before ended with their router.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from emel.graph.errors import GraphError
from emel.graph.mixtures import mixtures_of
from emel.graph.ops import Embed, Gather, Rows
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emel.graph.batch import Batch
    from emel.graph.mixtures import Mixture
    from emel.graph.ops import Graph, Operation
    from emel.graph.plan import Plan
    from emel.kernel.packing import Location
    from emel.kernel.pool import LanePool
    from emel.tensor.window_layout import WindowLayout


@runtime_checkable
class StagedSource(Protocol):
    """Weights of which some are there only when they are acquired; emel.kernel.streaming.StreamedWeights is one."""

    layout: WindowLayout

    def locate(self, name: str, /) -> Location:
        """The location of a weight, for a streamed one that in the first slot."""

    def unit_of(self, name: str, /) -> int | None:
        """The unit a weight is streamed with, None for one that stays."""

    def locate_in_slot(self, unit: int, slot: int, /) -> Mapping[str, Location]:
        """Where the weights of a unit lie when a slot holds it."""

    def acquire(self, unit: int, /) -> int:
        """The slot that holds a unit until the next call."""

    def experts_of(self, name: str, /) -> int | None:
        """The group of experts a weight belongs to that are read when they were chosen; None for any other weight."""

    def ensure_experts(self, group: int, n_rows: Sequence[int], /) -> None:
        """Has the experts of a group in memory that rows go to; how many rows, for each of them."""

    def ensure_rows(self, tokens: Iterable[int], /) -> None:
        """Has the embedding of these tokens in memory."""

    def ensure_unchanged(self) -> None:
        """Raises SourceError when a file was written to since it was opened."""


Rebase = tuple[int, int, int]  # weight index, address, bytes


@dataclass(frozen=True, slots=True)
class Stage:
    """Segments [begin, end), and for each slot where the weights of the first one lie; its experts, of which group."""

    begin: int
    end: int
    unit: int | None = None
    experts: int | None = None
    mixture: Mixture | None = None
    rebases: tuple[tuple[Rebase, ...], ...] = ()
    is_for_outputs: bool = False  # without output rows there is nothing to do


class Stages:
    """The stages of a graph over `weights`; GraphError when units and segments do not match."""

    def __init__(self, graph: Graph, weights: StagedSource) -> None:
        self._weights = weights
        self.stages = tuple(_merged(list(_cut(graph, weights)), graph.n_segments))

    def run(self, plan: Plan, pool: LanePool, batch: Batch) -> int:
        """Runs a bound batch; the emel_status of the first stage that was refused, else 0.

        Raises what acquiring raises: SourceError for a file that cannot be read (any more).
        """
        weights, record = self._weights, batch.record
        weights.ensure_rows(batch.tokens[: batch.n_tokens])
        for stage in self.stages:
            if stage.is_for_outputs and not batch.n_outputs:
                continue
            if stage.experts is not None and stage.mixture is not None:
                weights.ensure_experts(stage.experts, plan.rows_of_experts(stage.mixture, batch))
            if stage.unit is not None:
                for index, address, n_bytes in stage.rebases[weights.acquire(stage.unit)]:
                    plan.rebase(index, address, n_bytes)
            record.segment_begin, record.segment_end = stage.begin, stage.end
            status = plan.run(pool, batch)
            if status:
                return status
        weights.ensure_unchanged()  # behind all reads: what this batch used was read from the model's own files
        return 0


def _cut(graph: Graph, weights: StagedSource) -> Iterable[Stage]:
    """One stage for each segment that reads a unit; what lies between is left out."""
    owners: dict[int, int] = {}
    for segment in range(graph.n_segments):
        operations = [each for each in graph.operations if each.segment == segment]
        read = {weight for operation in operations for weight in operation.weights()}
        units = {unit for weight in read if (unit := weights.unit_of(weight.name)) is not None}
        experts, mixture = _experts_of(segment, operations, weights)
        if not units and experts is None:
            continue
        if len(units) > 1:
            raise GraphError(f"segment {segment} reads {len(units)} units of streamed weights: one is allowed")
        is_for_outputs = all(map(_is_for_outputs, operations))
        if not units:
            yield Stage(segment, segment + 1, None, experts, mixture, is_for_outputs=is_for_outputs)
            continue
        (unit,) = units
        if owners.setdefault(unit, segment) != segment:
            raise GraphError(f"segments {owners[unit]} and {segment} read the same unit of streamed weights")
        if any(isinstance(each, Embed) and weights.unit_of(each.weight.name) is not None for each in operations):
            raise GraphError("an embedding is streamed: it is read by rows, or stays in memory")
        index_of = {weight.name: weight.index for weight in read}
        rebases = tuple(
            tuple(
                (index_of[name], location.address, location.n_bytes)
                for name, location in weights.locate_in_slot(unit, slot).items()
                if name in index_of
            )
            for slot in range(weights.layout.n_slots)
        )
        yield Stage(segment, segment + 1, unit, experts, mixture, rebases, is_for_outputs)


def _experts_of(
    segment: int, operations: Iterable[Operation], weights: StagedSource
) -> tuple[int | None, Mixture | None]:
    """The group and the mixture of a segment whose experts are read when they were chosen."""
    operations = list(operations)
    for mixture in mixtures_of(operations):
        groups = {weights.experts_of(weight.name) for weight in mixture.weights}
        if groups == {None}:
            continue
        if len(groups) > 1 or len(mixtures_of(operations)) > 1:
            raise GraphError(f"segment {segment} reads several mixtures of experts: one is allowed")
        if any(mixture.routing in operation.outputs() for operation in operations):
            raise GraphError(f"segment {segment} chooses the experts it reads: a segment before must")
        return groups.pop(), mixture
    return None, None


def _is_for_outputs(operation: Operation) -> bool:
    values = (*operation.inputs(), *operation.outputs())
    return not isinstance(operation, Gather) and all(value.rows is Rows.OUTPUTS for value in values)


def _merged(cut: list[Stage], n_segments: int) -> Iterable[Stage]:
    """The stages with the resident segments behind each; the first one has those before it."""
    begins = [stage.begin for stage in cut] + [n_segments]
    if begins[0]:
        yield Stage(0, begins[0])
    for stage, end in zip(cut, begins[1:], strict=True):
        yield replace(stage, end=end, is_for_outputs=stage.is_for_outputs and end == stage.end)
