"""Matrices read and packed by the read lanes, into memory they stay in: a load that takes two chunks besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.io.lanes import Part
from emel.io.platform import SYSTEM, Platform
from emel.io.staged import CloseStaged, OpenStaged, ReadMatrices, StagedContext, StagedMachine, StagedState
from emel.kernel.packing import pack_around

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.io.parts import FilePart
    from emel.kernel.packing import Location, PackedWeights, Vector
    from emel.tensor.window_layout import Extent


def load_packed(
    parts: Sequence[FilePart],
    extents: Sequence[Extent],
    vectors: Sequence[Vector],
    *,
    chunk_bytes: int,
    platform: Platform = SYSTEM,
) -> PackedWeights:
    """Reads matrices of a model's files and keeps them packed, the vectors behind them.

    SourceError when a file cannot be read; ValueError as `emel.kernel.packing.pack` raises it.
    """

    def fill(places: dict[str, Location]) -> None:
        if extents:
            _read_all(OpenStaged(tuple(parts), chunk_bytes), extents, places, platform)

    return pack_around([(extent.name, extent.packed_bytes) for extent in extents], vectors, fill)


def _read_all(opening: OpenStaged, extents: Sequence[Extent], places: dict[str, Location], platform: Platform) -> None:
    machine = StagedMachine(StagedContext(platform))
    machine.dispatch(opening)
    try:
        if machine.state is StagedState.READY:
            in_file_order = sorted(extents, key=lambda each: each.place)
            machine.dispatch(ReadMatrices(tuple(_part(each, places[each.name]) for each in in_file_order)))
        if machine.context.error is not None:
            raise machine.context.error
    finally:
        if machine.state is StagedState.READY:
            machine.dispatch(CloseStaged())


def _part(extent: Extent, place: Location) -> Part:
    return Part(extent.offset, place.address, place.n_bytes, extent.rows, extent.cols, int(extent.type), extent.part)
