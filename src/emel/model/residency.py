"""What of a model's weights stays in memory and what is streamed, for a budget of bytes; pure arithmetic on a graph.

Plain vectors and matrices that are read more than once always stay. The others are units of the window
(emel.model.matrix_roles). The output matrix stays, or is cut by rows into units of its own; an embedding that does not
stay as the output is read by rows. Of these ways the one that reads the least for each pass is taken. Experts are no
units: they are read when they were chosen, and get the memory that everything else leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.pieces import pieces_of
from emel.io.lanes import N_LANES
from emel.kernel.sizes import ROW_GROUP, packed_bytes
from emel.kernel.sparse_experts import ExpertGroup
from emel.kernel.sparse_rows import cached_bytes
from emel.lazy_dataclasses import dataclass
from emel.model.matrix_roles import MOST_UNITS, MatrixRoles, memory_of, piece_rows, roles_of
from emel.tensor.window_layout import Extent, Unit, WindowError, WindowLayout, lay_out, smallest_budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from emel.graph.mixtures import Mixture
    from emel.graph.ops import Graph

# Larger ones leave lanes idle at the end of a unit, and are not in a cache any more when they are packed.
MIN_CHUNK, MAX_CHUNK = 1 << 16, 1 << 19
_CHUNK_SHARE = 256  # of the budget, for each of the chunks that are read at a time
_READER_BYTES = 1 << 19  # requests, alignment, bookkeeping


@dataclass(frozen=True, slots=True)
class WeightBudget:
    """Memory for the weights, and the tokens of the largest batch; `n_slots` None: as many as are worth it."""

    n_bytes: int
    max_rows: int
    n_slots: int | None = None


@dataclass(frozen=True, slots=True)
class Residency:
    """`layout` has the units, resident ones included; `kept` names all matrices that stay in memory."""

    layout: WindowLayout
    kept: tuple[str, ...]
    rows: Extent | None  # the embedding that is read by rows
    rows_bytes: int  # memory for it
    piece_rows: int  # of the output matrix; 0: it is whole
    cut: Mapping[str, int]  # rows of a piece of each other matrix that is in pieces
    chunk_bytes: int
    n_bytes: int  # of memory, all of it
    experts: tuple[ExpertGroup, ...] = ()  # that are read when they were chosen
    experts_bytes: int = 0  # memory for them

    @property
    def is_resident(self) -> bool:
        """Whether nothing is streamed."""
        return self.layout.is_resident and self.rows is None and not self.experts


def plan_residency(
    graph: Graph,
    extents: Mapping[str, Extent],
    budget: int,
    *,
    vector_bytes: int,
    max_rows: int,
    pinned: Collection[str] = (),
    n_slots: int | None = None,
) -> Residency:
    """The residency for `budget` bytes; WindowError names the smallest there is one for.

    extents: every matrix of the graph by name. max_rows: tokens of the largest batch. pinned: matrices that stay, with
    all of a mixture where one of it does.
    """
    everything = all_bytes(extents, vector_bytes)
    if everything <= budget:
        return Residency(WindowLayout((), (), 0, 0), tuple(extents), None, 0, 0, {}, 0, everything)
    choices = _choices(graph, extents, max_rows, pinned)
    for chunk in (chunk_for(budget, extents.values()), chunk_for(0, extents.values())):
        fixed = vector_bytes + choices.reading_bytes(chunk)
        left = budget - fixed - choices.experts.least_bytes
        found = [each for way in choices.ways if (each := _laid_out(way, left, n_slots)) is not None]
        if found:
            way, layout = min(found, key=lambda each: each[1].streamed_file_bytes)
            n_bytes = fixed + way.n_bytes + layout.resident_bytes + layout.arena_bytes
            return _residency(way, layout, chunk, choices.experts, n_bytes=n_bytes, budget=budget)
    least = least_budget(graph, extents, vector_bytes=vector_bytes, max_rows=max_rows, pinned=pinned, n_slots=n_slots)
    raise WindowError(f"{budget} bytes are too few for these weights: {least} are the least")


def least_budget(
    graph: Graph,
    extents: Mapping[str, Extent],
    *,
    vector_bytes: int,
    max_rows: int,
    pinned: Collection[str] = (),
    n_slots: int | None = None,
) -> int:
    """The smallest budget that `plan_residency` finds a residency for."""
    everything, choices = all_bytes(extents, vector_bytes), _choices(graph, extents, max_rows, pinned)
    fixed = vector_bytes + choices.reading_bytes(chunk_for(0, extents.values())) + choices.experts.least_bytes
    streamed = [fixed + way.n_bytes + smallest_budget(way.units, n_slots) for way in choices.ways]
    return min(everything, *streamed)


def all_bytes(extents: Mapping[str, Extent], vector_bytes: int) -> int:
    """Memory for all weights."""
    return vector_bytes + memory_of(extents, extents)


def _choices(graph: Graph, extents: Mapping[str, Extent], max_rows: int, pinned: Collection[str]) -> _Choices:
    graph = cut_behind_routers(graph)
    mixtures = mixtures_of(graph.operations)
    stay = [each for each in mixtures if any(weight.name in pinned for weight in each.weights)]
    kept = {*pinned, *(weight.name for mixture in stay for weight in mixture.weights)}
    roles = roles_of(graph, extents, kept)
    n_rows = (0, *_output_rows(roles, extents)) if roles.units else ()
    return _Choices(
        [_way(roles, extents, output_rows, max_rows) for output_rows in n_rows],
        _experts_of([each for each in mixtures if each not in stay], extents, max_rows),
    )


def _laid_out(way: _Way, budget: int, n_slots: int | None) -> tuple[_Way, WindowLayout] | None:
    try:
        return way, lay_out(way.units, budget - way.n_bytes, n_slots)
    except WindowError:
        return None


def _residency(
    way: _Way, layout: WindowLayout, chunk: int, experts: _Experts, *, n_bytes: int, budget: int
) -> Residency:
    experts_bytes = min(budget - n_bytes, experts.most_bytes)
    cut, stay = _cut_or_whole(way, layout)
    return Residency(
        layout=layout,
        kept=(*way.kept, *stay),
        rows=way.rows,
        rows_bytes=way.rows_bytes,
        piece_rows=way.piece_rows,
        cut=cut,
        chunk_bytes=chunk,
        n_bytes=n_bytes + experts_bytes,
        experts=experts.groups,
        experts_bytes=experts_bytes,
    )


def _cut_or_whole(way: _Way, layout: WindowLayout) -> tuple[dict[str, int], list[str]]:
    """Rows of a piece of each matrix that is streamed in pieces, and what stays: whole where all of it does."""
    stay = {extent.name: extent.name for index in layout.resident for extent in layout.units[index]}
    cut = {}
    for name, pieces in way.pieces.items():
        if all(piece.name in stay for piece in pieces):
            stay |= {piece.name: name for piece in pieces}
        else:
            cut[name] = pieces[0].rows
    return cut, list(dict.fromkeys(stay.values()))


def chunk_for(budget: int, extents: Iterable[Extent]) -> int:
    """Bytes read at a time: a small share of the budget, but 16 rows of every matrix; a power of two."""
    widest = max(extent.n_bytes // extent.rows for extent in extents) * ROW_GROUP
    wanted = max(min(budget // _CHUNK_SHARE, MAX_CHUNK), widest)
    chunk = MIN_CHUNK
    while chunk < wanted:
        chunk *= 2
    return chunk


def cut_extent(extent: Extent, n_rows: int) -> tuple[Extent, ...]:
    """A matrix in pieces of `n_rows` rows."""
    row_bytes = extent.n_bytes // extent.rows
    return tuple(
        Extent(
            piece.name,
            extent.offset + piece.begin * row_bytes,
            piece.n_rows * row_bytes,
            piece.n_rows,
            extent.cols,
            extent.type,
            packed_bytes(extent.type, piece.n_rows, extent.cols),
            extent.part,
        )
        for piece in pieces_of(extent.name, extent.rows, n_rows)
    )


@dataclass(frozen=True, slots=True)
class _Experts:
    """All mixtures, and the memory that one batch needs of it, and that all experts take."""

    groups: tuple[ExpertGroup, ...]
    least_bytes: int
    most_bytes: int


def _experts_of(mixtures: Iterable[Mixture], extents: Mapping[str, Extent], max_rows: int) -> _Experts:
    groups: list[ExpertGroup] = []
    least = 0
    for mixture in mixtures:
        group = ExpertGroup(
            mixture.n_experts, mixture.n_used, tuple(extents[weight.name] for weight in mixture.weights)
        )
        groups.append(group)
        least = max(least, min(mixture.n_experts, mixture.n_used * max_rows) * group.expert_bytes)
    return _Experts(tuple(groups), least, sum(group.n_experts * group.expert_bytes for group in groups))


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to treat output matrix and embedding."""

    units: tuple[Unit, ...]
    pieces: Mapping[str, tuple[Extent, ...]]  # of each matrix that is cut, but the output
    kept: tuple[str, ...]
    rows: Extent | None
    rows_bytes: int
    piece_rows: int
    n_bytes: int  # of what is kept, and of rows


@dataclass(frozen=True, slots=True)
class _Choices:
    """The ways there are, none for a model without layers, and the experts."""

    ways: list[_Way]
    experts: _Experts

    def reading_bytes(self, chunk: int) -> int:
        """Memory that reading takes: experts have lanes of their own."""
        return (2 if self.experts.groups else 1) * (N_LANES * chunk + _READER_BYTES)


def _way(roles: MatrixRoles, extents: Mapping[str, Extent], output_rows: int, max_rows: int) -> _Way:
    kept, output = list(roles.shared), roles.output
    pieces = {
        names[0]: cut_extent(extents[names[0]], piece_rows(extents[names[0]], roles.unit_bytes))
        for names in roles.units
        if memory_of(names, extents) > roles.unit_bytes
    }
    units: list[Unit] = []
    for names in roles.units:
        units += [(piece,) for piece in pieces.get(names[0], ())] or [tuple(extents[name] for name in names)]
    if output is not None and output_rows:
        units += [(piece,) for piece in cut_extent(extents[output], output_rows)]
    elif output is not None:
        kept.append(output)
    by_rows = roles.embedding if roles.embedding not in kept else None
    rows = extents[by_rows] if by_rows is not None else None
    rows_bytes = cached_bytes(rows, max_rows) if rows is not None else 0
    n_bytes = rows_bytes + memory_of(kept, extents)
    return _Way(tuple(units), pieces, tuple(kept), rows, rows_bytes, output_rows, n_bytes)


def _output_rows(roles: MatrixRoles, extents: Mapping[str, Extent]) -> tuple[int, ...]:
    """Rows of pieces about as large as a unit; nothing when the output is no larger, or cannot be cut."""
    if roles.output is None:
        return ()
    extent = extents[roles.output]
    n_rows = piece_rows(extent, max(extent.packed_bytes // MOST_UNITS, roles.unit_bytes))
    return (n_rows,) if n_rows < extent.rows else ()
