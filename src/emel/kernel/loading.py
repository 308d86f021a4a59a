"""Matrices read from a model's files and packed on the way by the lanes of a pool, into memory they stay in.

A lane packs what it has just read while that is in its cache: a load takes the packed weights and one chunk per lane.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from emel._native import LIBRARY, check
from emel._native.reader import ReadDone, declare_reader
from emel.io.lanes import LaneCalls, Part, error_of, native_desc, part_array
from emel.kernel.packing import pack_around, pack_batches
from emel.kernel.sizes import ROW_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emel.io.parts import OpenedPart
    from emel.kernel.packing import Location, Matrix, PackedWeights, Vector
    from emel.kernel.pool import LanePool
    from emel.tensor.window_layout import Extent

_CHUNK_BYTES = 512 << 10  # half of a core's second cache, where it is small


class Computed(NamedTuple):
    """Matrices that do not lie in a file as they are: `read` gets a name and the bytes to fill."""

    matrices: Sequence[Matrix]
    read: Callable[[str, memoryview], None]


def load_packed(
    pool: LanePool,
    opened: Sequence[OpenedPart],
    extents: Sequence[Extent],
    vectors: Sequence[Vector],
    *,
    computed: Computed | None = None,
    keeps_cache: bool = True,
    calls: LaneCalls | None = None,
) -> PackedWeights:
    """Reads matrices of a model's open files and keeps them packed, the vectors behind them.

    keeps_cache: what was read stays in the page cache. SourceError when a file cannot be read; ValueError as
    `emel.kernel.packing.pack` raises it.
    """
    computed = computed or Computed((), _read_nothing)

    def fill(places: Mapping[str, Location]) -> None:
        if extents:
            _load(pool, opened, extents, places, calls or LaneCalls(), keeps_cache=keeps_cache)
        pack_batches(pool, computed.matrices, places, computed.read)

    sizes = [(extent.name, extent.packed_bytes) for extent in extents]
    return pack_around(sizes, vectors, fill, computed.matrices)


def _load(
    pool: LanePool,
    opened: Sequence[OpenedPart],
    extents: Sequence[Extent],
    places: Mapping[str, Location],
    calls: LaneCalls,
    *,
    keeps_cache: bool,
) -> None:
    declare_reader()
    in_file_order = sorted(extents, key=lambda each: each.place)
    parts = part_array([_part(extent, places[extent.name]) for extent in in_file_order])
    chunk_bytes = max(_CHUNK_BYTES, *(ROW_GROUP * (extent.n_bytes // extent.rows) for extent in extents))
    desc = native_desc(opened, chunk_bytes, calls, keeps_cache=keeps_cache)
    done = ReadDone()
    check(LIBRARY.emel_load(pool.handle, ctypes.byref(desc), parts, len(parts), ctypes.byref(done)))
    if (error := error_of(done, opened[done.file])) is not None:
        raise error


def _part(extent: Extent, place: Location) -> Part:
    return Part(extent.offset, place.address, place.n_bytes, extent.rows, extent.cols, int(extent.type), extent.part)


def _read_nothing(name: str, _target: memoryview) -> None:
    raise ValueError(f"tensor {name!r} has no data, and nothing reads it")
