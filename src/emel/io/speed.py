"""How fast a file is read, through the page cache and past it: what decides which of the two a window uses."""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from emel.io.descriptor import close_quietly
from emel.io.platform import SYSTEM, Platform
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.io.parts import FilePart

CHUNK_BYTES = 4 << 20
_LEAST_GAIN = 1.1  # of direct reads, before they are preferred


@dataclass(frozen=True, slots=True)
class ReadSpeeds:
    """Bytes per second of one reader; None is what the file system does not do, or what could not be measured."""

    buffered: float | None
    direct: float | None

    @property
    def is_direct_faster(self) -> bool:
        """Whether direct reads are worth having."""
        return self.direct is not None and (self.buffered is None or self.direct > _LEAST_GAIN * self.buffered)

    @property
    def best(self) -> float | None:
        """The faster of the two."""
        return max((speed for speed in (self.buffered, self.direct) if speed is not None), default=None)


def measure_reads(path: str, n_bytes: int, *, seconds: float = 0.1, platform: Platform = SYSTEM) -> ReadSpeeds:
    """Reads for about `seconds` each way, cold: what is read is dropped from the page cache first and after."""
    buffered = direct = None
    with suppress(OSError):
        direct = _measured(platform, platform.open_direct(path), n_bytes, seconds, _leave_cache)
    with suppress(OSError):
        buffered = _measured(platform, platform.open(path), n_bytes, seconds, _drop_cache)
    return ReadSpeeds(buffered, direct)


def measure_model(parts: Sequence[FilePart], *, seconds: float = 0.1, platform: Platform = SYSTEM) -> ReadSpeeds:
    """The same of a model's largest file: of a split model the first may have no tensors."""
    largest = max(parts, key=lambda each: each.n_bytes)
    return measure_reads(largest.path, largest.n_bytes, seconds=seconds, platform=platform)


def _measured(
    platform: Platform,
    descriptor: int,
    n_bytes: int,
    seconds: float,
    prepare: Callable[[int, int, int], None],
) -> float | None:
    """Bytes per second from the front on; chunks are whole ones, so that direct reads are aligned."""
    try:
        # Direct reads need an aligned buffer; an anonymous mapping starts at a page.
        with mmap.mmap(-1, CHUNK_BYTES) as buffer, memoryview(buffer) as target:
            done, spent = 0, 0.0
            while spent < seconds and done + CHUNK_BYTES <= n_bytes:
                prepare(descriptor, done, CHUNK_BYTES)
                begin = time.perf_counter()
                n_read = platform.read_into(descriptor, target, done)
                spent += time.perf_counter() - begin
                prepare(descriptor, done, CHUNK_BYTES)
                done += n_read
                if n_read < CHUNK_BYTES:
                    break
            return done / spent if spent else None
    finally:
        close_quietly(platform, descriptor)


def _leave_cache(_descriptor: int, _offset: int, _n_bytes: int) -> None:
    pass


def _drop_cache(descriptor: int, offset: int, n_bytes: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, n_bytes, os.POSIX_FADV_DONTNEED)
