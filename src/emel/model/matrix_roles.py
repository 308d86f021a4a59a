"""What reads each matrix of a graph, and which of them are streamed together; pure arithmetic.

A unit of the window is some rows of a matrix, or neighbours of one segment that together are no larger: a slot is as
large as the largest unit in it, and what slots take is read again with each pass
(docs/decisions/0012-matrices-as-units.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.mixtures import mixtures_of
from emel.graph.ops import Embed
from emel.graph.pieces import linears_to_cut, output_linear
from emel.kernel.sizes import ROW_GROUP, aligned, packed_bytes
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping

    from emel.graph.ops import Graph
    from emel.tensor.window_layout import Extent

MOST_UNITS = 256
"""About; each costs a dispatch and a native call."""
_PIECES = 4  # of the largest matrix


@dataclass(frozen=True, slots=True)
class MatrixRoles:
    """Names of matrices by what reads them, but for experts that are read when they were chosen."""

    units: tuple[tuple[str, ...], ...]  # in the order they are read in
    unit_bytes: int  # none is larger, once what is larger is cut
    embedding: str | None  # could be read by rows
    output: str | None  # could be cut
    shared: tuple[str, ...]


def roles_of(graph: Graph, extents: Mapping[str, Extent], pinned: Collection[str]) -> MatrixRoles:
    """The roles in a graph that is cut behind its routers. pinned: matrices that stay, with all experts beside one."""
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
    placed = {name: where[0] for name, where in segments.items() if name not in shared}
    most = _unit_bytes(placed, linears_to_cut(graph), extents)
    return MatrixRoles(
        units=_units_of(placed, extents, most),
        unit_bytes=most,
        embedding=next((name for name in embedded if name not in shared), None),
        output=output_name if output_name not in shared else None,
        shared=(*shared, *embedded[1:]),
    )


def _unit_bytes(names: Collection[str], can_cut: Container[str], extents: Mapping[str, Extent]) -> int:
    """The size of a unit that none exceeds once what is larger is cut."""
    sizes = {name: memory_of((name,), extents) for name in names}
    least = (_group_bytes(extents[name]) if name in can_cut else size for name, size in sizes.items())
    return max(max(sizes.values(), default=0) // _PIECES, sum(sizes.values()) // MOST_UNITS, *least)


def piece_rows(extent: Extent, most: int) -> int:
    """Rows of the fewest pieces about as large as each other of which none has more than `most` bytes."""
    n_groups = -(-extent.rows // ROW_GROUP)
    n_pieces = -(-n_groups // max(most // _group_bytes(extent), 1))
    return -(-n_groups // n_pieces) * ROW_GROUP


def _group_bytes(extent: Extent) -> int:
    return aligned(packed_bytes(extent.type, ROW_GROUP, extent.cols))


def _units_of(segments: Mapping[str, int], extents: Mapping[str, Extent], most: int) -> tuple[tuple[str, ...], ...]:
    """Matrices, by their segments and in the order they are read in, as units."""
    units: list[list[str]] = []
    for name, segment in segments.items():
        is_next = units and segments[units[-1][0]] == segment
        if is_next and memory_of((*units[-1], name), extents) <= most:
            units[-1].append(name)
        else:
            units.append([name])
    return tuple(map(tuple, units))


def memory_of(names: Iterable[str], extents: Mapping[str, Extent]) -> int:
    """Bytes that these take in memory."""
    return sum(aligned(extents[name].packed_bytes) for name in names)
