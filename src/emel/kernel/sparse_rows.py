"""The rows of a matrix that a batch asks for, read when it does: what an embedding too large to keep is.

The packed matrix has its place in the address space, and memory only where row groups were read. Those stay until they
are more than the cache may hold; then all go, but what the batch needs is read again.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from emel._native import LIBRARY, abi, check
from emel._native.addresses import held_address
from emel.io.descriptor import close_quietly, open_regular, read_exactly
from emel.io.platform import SYSTEM, Platform
from emel.kernel.buffers import Memory
from emel.kernel.packing import Location
from emel.kernel.sizes import ROW_GROUP, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.kernel.pool import LanePool
    from emel.tensor.window_layout import Extent

_PAGE = mmap.PAGESIZE


class SparseRows:
    """The rows of `extent` in the file at `path`; SourceError when that cannot be opened, MemoryError.

    They take at most `cache_bytes`, or what one batch asks for (`cached_bytes`) where that is more.
    """

    def __init__(
        self, path: str, extent: Extent, pool: LanePool, *, cache_bytes: int, platform: Platform = SYSTEM
    ) -> None:
        self.name = extent.name
        self.n_reads = 0
        self._extent, self._path, self._pool, self._platform = extent, path, pool, platform
        self._group_bytes = packed_bytes(extent.type, ROW_GROUP, extent.cols)
        self._row_bytes = extent.n_bytes // extent.rows
        self._n_cached_at_most = max(cache_bytes // _touched_bytes(self._group_bytes), 1)
        self._present: set[int] = set()
        self._memory = Memory(extent.packed_bytes)
        self._opened = open_regular(platform, path)  # last: a file that was opened would stay open for ever

    @property
    def location(self) -> Location:
        """Where the whole matrix would lie."""
        return Location(self._memory.address, self._extent.packed_bytes)

    def ensure(self, rows: Iterable[int]) -> None:
        """Has these rows in memory; rows outside the matrix are left to whoever checks them. SourceError."""
        wanted = {row // ROW_GROUP for row in rows if 0 <= row < self._extent.rows}
        missing = sorted(wanted - self._present)
        if not missing:
            return
        if len(self._present) + len(missing) > self._n_cached_at_most:
            self._present.clear()
            self._memory.discard(0, self._memory.n_bytes)
            missing = sorted(wanted)
        self._read(missing)
        self._present.update(missing)

    def _read(self, groups: Sequence[int]) -> None:
        staging = bytearray(self._row_bytes * ROW_GROUP * len(groups))
        jobs = (abi.PackJob * len(groups))()
        with memoryview(staging) as target:
            for index, (job, group) in enumerate(zip(jobs, groups, strict=True)):
                n_rows = min(ROW_GROUP, self._extent.rows - group * ROW_GROUP)
                begin = index * ROW_GROUP * self._row_bytes
                with target[begin : begin + n_rows * self._row_bytes] as chunk:
                    read_exactly(
                        self._platform,
                        self._path,
                        self._opened,
                        chunk,
                        self._extent.offset + group * ROW_GROUP * self._row_bytes,
                    )
                job.src, job.src_bytes = begin, n_rows * self._row_bytes
                job.dst, job.dst_bytes = self._memory.address + group * self._group_bytes, self._group_bytes
                job.rows, job.cols, job.type = n_rows, self._extent.cols, int(self._extent.type)
            with held_address(staging) as address:
                for job in jobs:
                    job.src = address + (job.src or 0)
                check(LIBRARY.emel_pack(self._pool.handle, jobs, len(jobs)))
        self.n_reads += len(groups)

    def close(self) -> None:
        """Gives memory and file back; harmless when repeated."""
        if not self._memory.is_closed:
            self._memory.close()
            close_quietly(self._platform, self._opened.descriptor)


def cached_bytes(extent: Extent, n_rows: int) -> int:
    """Memory that any `n_rows` rows can take."""
    group_bytes = packed_bytes(extent.type, ROW_GROUP, extent.cols)
    return min(n_rows * _touched_bytes(group_bytes), -(-extent.packed_bytes // _PAGE) * _PAGE)


def _touched_bytes(group_bytes: int) -> int:
    """Bytes of memory a group can take: every page it touches."""
    return (-(-group_bytes // _PAGE) + 1) * _PAGE
