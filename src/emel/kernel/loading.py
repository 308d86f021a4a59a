"""Matrices read and packed by the read lanes, into memory they stay in: a load that takes two chunks besides."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from emel.io.descriptor import close_quietly, open_regular
from emel.io.lanes import MOST_PARTS, Part, ReadLanes, Request
from emel.io.platform import SYSTEM, Platform
from emel.kernel.packing import pack_around

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.io.errors import SourceError
    from emel.kernel.packing import Location, PackedWeights, Vector
    from emel.tensor.window_layout import Extent


def load_packed(
    path: str,
    extents: Sequence[Extent],
    vectors: Sequence[Vector],
    *,
    chunk_bytes: int,
    platform: Platform = SYSTEM,
) -> PackedWeights:
    """Reads matrices of the file at `path` and keeps them packed, the vectors behind them.

    SourceError when the file cannot be read; ValueError as `emel.kernel.packing.pack` raises it.
    """

    def fill(places: dict[str, Location]) -> None:
        if extents:
            _read_all(path, sorted(extents, key=lambda each: each.offset), places, chunk_bytes, platform)

    return pack_around([(extent.name, extent.packed_bytes) for extent in extents], vectors, fill)


def _read_all(
    path: str, extents: Sequence[Extent], places: dict[str, Location], chunk_bytes: int, platform: Platform
) -> None:
    arrived = threading.Semaphore(0)
    errors: list[SourceError] = []

    def deliver(_ticket: int, error: SourceError | None) -> None:
        if error is not None:
            errors.append(error)
        arrived.release()

    opened = open_regular(platform, path)
    try:
        with ReadLanes(path, opened, deliver, chunk_bytes=chunk_bytes) as lanes:
            for begin in range(0, len(extents), MOST_PARTS):
                lanes.submit(begin, Request([_part(each, places) for each in extents[begin : begin + MOST_PARTS]]))
                arrived.acquire()
    finally:
        close_quietly(platform, opened.descriptor)
    if errors:
        raise errors[0]


def _part(extent: Extent, places: dict[str, Location]) -> Part:
    place = places[extent.name]
    return Part(extent.offset, place.address, place.n_bytes, extent.rows, extent.cols, int(extent.type))
