"""How fast a file is read, through the page cache and past it: what decides which of the two a window uses."""

from __future__ import annotations

import math
import mmap
import os
import time
from contextlib import ExitStack, suppress
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING

from emel.io.descriptor import close_quietly
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.io.parts import FilePart

CHUNK_BYTES = 4 << 20
# Of one direct reader over one through the cache, which has the kernel read ahead. Lanes read several chunks at a time
# either way, and direct reads leave them a quarter of a CPU for each GB/s: nothing is copied, no cache is looked after.
_LEAST_DIRECT = 0.75


@dataclass(frozen=True, slots=True)
class ReadSpeeds:
    """Bytes per second of one reader; None is what the file system does not do, or what could not be measured."""

    buffered: float | None
    direct: float | None

    @property
    def is_direct_better(self) -> bool:
        """Whether lanes should read past the page cache."""
        return self.direct is not None and (self.buffered is None or self.direct >= _LEAST_DIRECT * self.buffered)

    @property
    def best(self) -> float | None:
        """The faster of the two."""
        return max((speed for speed in (self.buffered, self.direct) if speed is not None), default=None)


def measure_reads(path: str, n_bytes: int, *, seconds: float = 0.1, platform: Platform = SYSTEM) -> ReadSpeeds:
    """Reads for about `seconds` each way, cold: what is read is dropped from the page cache first and after.

    The two ways take turns, chunk by chunk, none of them read twice (a disk has caches of its own), and the speed is
    that of the median chunk: what else the machine does at a moment slows both, and decides nothing.
    """
    with ExitStack() as opened:
        readers: list[_Reader] = []
        for open_file, prepare in ((platform.open_direct, _leave_cache), (platform.open, _drop_cache)):
            with suppress(OSError):
                reader = _Reader(platform, open_file(path), prepare)
                opened.callback(reader.close)
                readers.append(reader)
        direct, buffered = (
            next((each for each in readers if each.prepare is how), None) for how in (_leave_cache, _drop_cache)
        )
        for offset, reader in zip(range(0, n_bytes - CHUNK_BYTES + 1, CHUNK_BYTES), cycle(readers), strict=False):
            if reader.seconds < seconds:
                reader.read(offset)
            elif all(each.seconds >= seconds for each in readers):
                break
        return ReadSpeeds(*(None if each is None else each.speed for each in (buffered, direct)))


def measure_model(parts: Sequence[FilePart], *, seconds: float = 0.1, platform: Platform = SYSTEM) -> ReadSpeeds:
    """The same of a model's largest file: of a split model the first may have no tensors."""
    largest = max(parts, key=lambda each: each.n_bytes)
    return measure_reads(largest.path, largest.n_bytes, seconds=seconds, platform=platform)


class _Reader:
    """One way to read a file; its chunks are whole ones, so that direct reads are aligned."""

    def __init__(self, platform: Platform, descriptor: int, prepare: Callable[[int, int, int], None]) -> None:
        self.prepare = prepare
        self.seconds = 0.0  # inf once it failed, or found the end
        self._platform, self._descriptor = platform, descriptor
        self._taken: list[float] = []
        # Direct reads need an aligned buffer; an anonymous mapping starts at a page.
        self._buffer = mmap.mmap(-1, CHUNK_BYTES)
        self._has_failed = False

    def read(self, offset: int) -> None:
        """Reads a chunk that is in no cache."""
        try:
            self.prepare(self._descriptor, offset, CHUNK_BYTES)
            with memoryview(self._buffer) as target:
                begin = time.perf_counter()
                n_read = self._platform.read_into(self._descriptor, target, offset)
                taken = time.perf_counter() - begin
            self.prepare(self._descriptor, offset, CHUNK_BYTES)
        except OSError:
            self._has_failed, self.seconds = True, math.inf
            return
        if n_read < CHUNK_BYTES:
            self.seconds = math.inf
            return
        self._taken.append(taken)
        self.seconds += taken

    @property
    def speed(self) -> float | None:
        """Bytes per second; None when a read failed, or there was nothing to read."""
        return CHUNK_BYTES / median(self._taken) if self._taken and not self._has_failed else None

    def close(self) -> None:
        """Gives file and buffer back."""
        self._buffer.close()
        close_quietly(self._platform, self._descriptor)


def _leave_cache(_descriptor: int, _offset: int, _n_bytes: int) -> None:
    pass


def _drop_cache(descriptor: int, offset: int, n_bytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, n_bytes, os.POSIX_FADV_DONTNEED)
