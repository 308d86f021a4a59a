"""What of a model's weights stays in memory and what is streamed, for a budget of bytes; pure arithmetic on a graph.

Plain vectors and matrices that are read more than once always stay. The others are units of the window: neighbours of
one segment that together are no larger than the largest matrix, as a slot is as large as the largest unit in it and
what slots take is read again with each pass. The output matrix stays, or is cut by rows into units of its own; an
embedding that does not stay as the output is read by rows. Of these ways the one that reads the least for each pass is
taken. Experts are no units: they are read when they were chosen, and get the memory that everything else leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.ops import Embed
from emel.graph.pieces import ROW_GROUP, output_linear, pieces_of
from emel.kernel.sizes import aligned, packed_bytes
from emel.kernel.sparse_experts import ExpertGroup
from emel.kernel.sparse_rows import cached_bytes
from emel.lazy_dataclasses import dataclass
from emel.tensor.window_layout import Extent, Unit, WindowError, WindowLayout, lay_out, smallest_budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from emel.graph.mixtures import Mixture
    from emel.graph.ops import Graph

MIN_CHUNK, MAX_CHUNK = 1 << 16, 2 << 20  # larger ones leave a lane idle at the end of a unit
_CHUNK_SHARE = 64  # of the budget, for each of the two chunks that are read at a time
_READER_BYTES = 1 << 19  # requests, alignment, bookkeeping
_MOST_UNITS = 256  # about; each costs a dispatch and a native call (docs/decisions/0012-matrices-as-units.md)


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
        return Residency(WindowLayout((), (), 0, 0), tuple(extents), None, 0, 0, 0, everything)
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
    return vector_bytes + sum(aligned(extent.packed_bytes) for extent in extents.values())


def _choices(graph: Graph, extents: Mapping[str, Extent], max_rows: int, pinned: Collection[str]) -> _Choices:
    graph = cut_behind_routers(graph)
    mixtures = mixtures_of(graph.operations)
    stay = [each for each in mixtures if any(weight.name in pinned for weight in each.weights)]
    kept = {*pinned, *(weight.name for mixture in stay for weight in mixture.weights)}
    roles = _roles_of(graph, extents, kept)
    n_rows = (0, *_piece_rows(roles, extents)) if roles.units else ()
    return _Choices(
        [_way(roles, extents, piece_rows, max_rows) for piece_rows in n_rows],
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
    return Residency(
        layout=layout,
        kept=(*way.kept, *(extent.name for index in layout.resident for extent in layout.units[index])),
        rows=way.rows,
        rows_bytes=way.rows_bytes,
        piece_rows=way.piece_rows,
        chunk_bytes=chunk,
        n_bytes=n_bytes + experts_bytes,
        experts=experts.groups,
        experts_bytes=experts_bytes,
    )


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
class _Roles:
    """Names of matrices by what reads them."""

    units: tuple[tuple[str, ...], ...]  # in the order they are read in
    embedding: str | None  # could be read by rows
    output: str | None  # could be cut
    shared: tuple[str, ...]


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
        return (2 if self.experts.groups else 1) * (2 * chunk + _READER_BYTES)


def _way(roles: _Roles, extents: Mapping[str, Extent], piece_rows: int, max_rows: int) -> _Way:
    kept, output = list(roles.shared), roles.output
    units: list[Unit] = [tuple(extents[name] for name in names) for names in roles.units]
    if output is not None and piece_rows:
        units += [(piece,) for piece in cut_extent(extents[output], piece_rows)]
    elif output is not None:
        kept.append(output)
    by_rows = roles.embedding if roles.embedding not in kept else None
    rows = extents[by_rows] if by_rows is not None else None
    rows_bytes = cached_bytes(rows, max_rows) if rows is not None else 0
    n_bytes = rows_bytes + sum(aligned(extents[name].packed_bytes) for name in kept)
    return _Way(tuple(units), tuple(kept), rows, rows_bytes, piece_rows, n_bytes)


def _piece_rows(roles: _Roles, extents: Mapping[str, Extent]) -> tuple[int, ...]:
    """Rows of pieces about as large as a unit; nothing when the output is no larger, or cannot be cut."""
    if roles.output is None:
        return ()
    extent = extents[roles.output]
    largest = max(extent.packed_bytes // _MOST_UNITS, *(_n_bytes(names, extents) for names in roles.units))
    n_rows = max(largest // packed_bytes(extent.type, ROW_GROUP, extent.cols), 1) * ROW_GROUP
    return (n_rows,) if n_rows < extent.rows else ()


def _roles_of(graph: Graph, extents: Mapping[str, Extent], pinned: Collection[str]) -> _Roles:
    output = output_linear(graph)
    mixtures = mixtures_of(graph.operations)
    experts = {weight.name for mixture in mixtures for weight in mixture.weights}.difference(pinned)
    segments: dict[str, list[int]] = {}
    embedded: list[str] = []
    for operation in graph.operations:
        names = [weight.name for weight in operation.weights() if weight.is_packed]
        if isinstance(operation, Embed):
            embedded += names
        elif operation is not output:
            for name in names:
                if name not in experts:
                    segments.setdefault(name, []).append(operation.segment)
    output_name = output.parts[0].weight.name if output is not None else None
    stay = {*pinned, *embedded, output_name}
    shared = [name for name, where in segments.items() if len(where) > 1 or name in stay]
    whole = (*embedded[:1], *(() if output_name is None else (output_name,)))
    shared += [name for name in dict.fromkeys(whole) if name in pinned and name not in shared]
    return _Roles(
        units=_units_of({name: where[0] for name, where in segments.items() if name not in shared}, extents),
        embedding=next((name for name in embedded if name not in shared), None),
        output=output_name if output_name not in shared else None,
        shared=(*shared, *embedded[1:]),
    )


def _units_of(segments: Mapping[str, int], extents: Mapping[str, Extent]) -> tuple[tuple[str, ...], ...]:
    """Matrices, by their segments and in the order they are read in, as units."""
    most = max((_n_bytes((name,), extents) for name in segments), default=0)
    most = max(most, -(-_n_bytes(segments, extents) // _MOST_UNITS))
    units: list[list[str]] = []
    for name, segment in segments.items():
        is_next = units and segments[units[-1][0]] == segment
        if is_next and _n_bytes((*units[-1], name), extents) <= most:
            units[-1].append(name)
        else:
            units.append([name])
    return tuple(map(tuple, units))


def _n_bytes(names: Iterable[str], extents: Mapping[str, Extent]) -> int:
    return sum(aligned(extents[name].packed_bytes) for name in names)
