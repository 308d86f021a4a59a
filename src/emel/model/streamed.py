"""Weights that stay within a budget: packed in memory as far as they fit, the rest streamed from the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.gguf.tensors import TensorInfo
from emel.graph.pieces import cut_logits
from emel.kernel.packing import Matrix, Vector, pack
from emel.kernel.sizes import aligned, packed_bytes
from emel.kernel.sparse_rows import SparseRows
from emel.kernel.streaming import StreamedWeights, Streaming
from emel.model.errors import ModelError
from emel.model.residency import Residency, plan_residency
from emel.model.tensors import Role, present
from emel.tensor.window_layout import Extent, WindowError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emel.graph.ops import Graph
    from emel.kernel.pool import LanePool
    from emel.model.loader import ModelDescription


def extents_of(description: ModelDescription) -> dict[str, Extent]:
    """Every matrix of a model: where it lies in the file, and how large it is packed."""
    expected = description.architecture.expected_tensors(description.parameters)
    infos = present(expected, description.tensors, Role.MATRIX)
    return {
        info.name: Extent(
            info.name,
            info.offset,
            info.n_bytes,
            info.rows,
            info.cols,
            info.type,
            packed_bytes(info.type, info.rows, info.cols),
        )
        for info in infos
    }


def choose_residency(
    description: ModelDescription, budget: int, *, max_rows: int, n_slots: int | None = None
) -> Residency:
    """What stays and what is streamed; ModelError when the budget is too small, with the smallest that works.

    max_rows: tokens of the largest batch.
    """
    architecture, parameters, tensors = description.architecture, description.parameters, description.tensors
    graph = architecture.build(parameters, tensors)
    vector_bytes = sum(aligned(weight.type.row_bytes(weight.cols)) for weight in graph.weights if not weight.is_packed)
    try:
        residency = plan_residency(
            graph, extents_of(description), budget, vector_bytes=vector_bytes, max_rows=max_rows, n_slots=n_slots
        )
    except WindowError as error:
        raise ModelError(str(error)) from None
    if not residency.is_resident and any(info.part for info in tensors.values()):
        raise ModelError("a model split into several files cannot be streamed: merge them (llama-gguf-split --merge)")
    return residency


def build_streamed(build: Callable[[], Graph], residency: Residency) -> Graph:
    """The graph as the residency needs it."""
    graph = build()
    return cut_logits(graph, residency.piece_rows) if residency.piece_rows else graph


def open_streamed(
    description: ModelDescription,
    residency: Residency,
    pool: LanePool,
    n_ctx: int | None = None,
    *,
    is_direct: bool = False,
) -> StreamedWeights:
    """Packs what stays and starts streaming the rest; raises what reading raises, and leaves nothing open then."""
    file, tensors, architecture = description.file, description.tensors, description.architecture
    parameters = description.parameters
    expected = architecture.expected_tensors(parameters)
    seen = {**tensors, **_pieces(residency, tensors)}
    kept = sorted((seen[name] for name in residency.kept), key=lambda info: (info.part, info.offset))
    matrices = [Matrix(info.name, info.type, info.rows, info.cols) for info in kept]
    derived = architecture.derived_vectors(parameters, file, min(n_ctx or parameters.n_ctx, parameters.n_ctx))
    with file.open_reader(seen) as reader:
        vectors = [
            Vector(info.name, info.type, info.n_values, reader.read(info.name))
            for info in present(expected, tensors, Role.VECTOR)
        ]
        resident = pack(pool, matrices, [*vectors, *derived], reader.read_into)
    try:
        rows = (
            SparseRows(file.path, residency.rows, pool, cache_bytes=residency.rows_bytes)
            if residency.rows is not None
            else None
        )
        streaming = Streaming(file.path, file.n_bytes, residency.layout, residency.chunk_bytes, is_direct)
        return StreamedWeights(resident, streaming, rows)
    except BaseException:
        resident.close()
        raise


def _pieces(residency: Residency, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The units that are no whole tensors, as tensors."""
    return {
        extent.name: TensorInfo(extent.name, (extent.rows, extent.cols), extent.type, extent.offset, extent.n_bytes)
        for unit in residency.layout.units
        for extent in unit
        if extent.name not in tensors
    }
