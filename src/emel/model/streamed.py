"""Weights that stay within a budget: packed in memory as far as they fit, the rest streamed from the file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from emel.graph.cuts import cut_before
from emel.graph.mixtures import cut_behind_routers
from emel.graph.pieces import cut_logits, cut_rows
from emel.io.speed import measure_model
from emel.io.unchanged import UnchangedFiles
from emel.kernel.loading import load_packed
from emel.kernel.packing import Vector
from emel.kernel.sizes import aligned
from emel.kernel.sparse_experts import ExpertStreaming, SparseExperts
from emel.kernel.sparse_rows import SparseRows
from emel.kernel.streaming import StreamedWeights, Streaming
from emel.model.errors import ModelError
from emel.model.extents import extents_of
from emel.model.merged import merged_matrices, tensors_in_file
from emel.model.residency import Residency, WeightBudget, all_bytes, least_budget, plan_residency
from emel.model.tensors import Role, present
from emel.tensor.window_layout import WindowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool
    from emel.model.loader import ModelDescription


def choose_residency(description: ModelDescription, budget: WeightBudget) -> Residency:
    """What stays and what is streamed; ModelError when the budget is too small, with the smallest that works."""
    graph = description.architecture.build(description.parameters, description.tensors)
    try:
        return plan_residency(
            graph,
            extents_of(description),
            budget.n_bytes,
            vector_bytes=_vector_bytes(graph),
            max_rows=budget.max_rows,
            pinned=description.merges,
            n_slots=budget.n_slots,
        )
    except WindowError as error:
        raise ModelError(str(error)) from None


def least_weight_bytes(description: ModelDescription, max_rows: int) -> int:
    """The smallest budget for the weights that works, with batches of up to `max_rows` tokens."""
    graph = description.architecture.build(description.parameters, description.tensors)
    return least_budget(
        graph,
        extents_of(description),
        vector_bytes=_vector_bytes(graph),
        max_rows=max_rows,
        pinned=description.merges,
    )


def all_weight_bytes(description: ModelDescription) -> int:
    """The budget for the weights with which none is streamed."""
    graph = description.architecture.build(description.parameters, description.tensors)
    return all_bytes(extents_of(description), _vector_bytes(graph))


def _vector_bytes(graph: Graph) -> int:
    return sum(aligned(weight.type.row_bytes(weight.cols)) for weight in graph.weights if not weight.is_packed)


def build_streamed(build: Callable[[], Graph], residency: Residency) -> Graph:
    """The graph as the residency needs it."""
    graph = cut_behind_routers(build()) if residency.experts else build()
    layout = residency.layout
    graph = cut_rows(graph, residency.cut)
    graph = cut_before(graph, [layout.units[index][0].name for index in layout.streamed])
    return cut_logits(graph, residency.piece_rows) if residency.piece_rows else graph


def open_streamed(
    description: ModelDescription, residency: Residency, pool: LanePool, n_ctx: int | None = None
) -> StreamedWeights:
    """Packs what stays and starts streaming the rest; raises what reading raises, and leaves nothing open then."""
    parts = tuple(description.file.parts)
    with ExitStack() as opened:
        files = UnchangedFiles(parts)
        opened.callback(files.close)
        resident = _load_resident(description, residency, pool, n_ctx)
        opened.callback(resident.close)
        is_direct = measure_model(parts).is_direct_better
        rows = experts = None
        if residency.rows is not None:
            path = parts[residency.rows.part].path
            rows = SparseRows(path, residency.rows, pool, cache_bytes=residency.rows_bytes)
            opened.callback(rows.close)
        if residency.experts:
            experts = SparseExperts(
                ExpertStreaming(parts, residency.experts, residency.experts_bytes, residency.chunk_bytes, is_direct)
            )
            opened.callback(experts.close)
        streaming = Streaming(parts, residency.layout, residency.chunk_bytes, is_direct)
        weights = StreamedWeights(resident, streaming, rows, experts, files)
        opened.pop_all()
        return weights


def _load_resident(
    description: ModelDescription, residency: Residency, pool: LanePool, n_ctx: int | None
) -> PackedWeights:
    file, architecture, parameters = description.file, description.architecture, description.parameters
    extents = extents_of(description) | {extent.name: extent for unit in residency.layout.units for extent in unit}
    expected = architecture.expected_tensors(parameters)
    derived = architecture.derived_vectors(parameters, file, min(n_ctx or parameters.n_ctx, parameters.n_ctx))
    with file.open_reader(tensors_in_file(description)) as reader:
        vectors = [
            Vector(info.name, info.type, info.n_values, reader.read(info.name))
            for info in present(expected, description.tensors, Role.VECTOR)
        ]
        kept = [extents[name] for name in residency.kept if name not in description.merges]
        computed = merged_matrices(description, extents, reader)
        return load_packed(pool, reader.opened, kept, [*vectors, *derived], computed=computed, keeps_cache=False)
