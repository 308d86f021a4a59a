"""Two short measurements of this machine: reading memory, and reading the disk a model lies on."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_BYTES = 256 << 20  # in all; far larger than the caches people have
DISK_BYTES = 128 << 20
DISK_CHUNK_BYTES = 4 << 20


def measure_memory_bandwidth(n_threads: int, n_rounds: int = 4) -> float:
    """Bytes per second that `n_threads` threads read together, the best of a few rounds over 256 MB."""
    import numpy as np

    share = MEMORY_BYTES // n_threads // 8
    arrays = [np.ones(share, dtype=np.int64) for _ in range(n_threads)]
    best = 0.0
    for _ in range(n_rounds):
        threads = [threading.Thread(target=array.max) for array in arrays[1:]]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        arrays[0].max()  # the interpreter lock is released inside
        for thread in threads:
            thread.join()
        best = max(best, share * 8 * n_threads / (time.perf_counter() - started))
    return best


def measure_disk_bandwidth(path: Path, seconds: float = 0.5) -> float | None:
    """Bytes per second of reading `path` past the page cache, which stays as it is; None where that cannot be done."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | direct)
    except OSError:  # the file system has no direct reads (tmpfs)
        return None
    try:
        # Direct reads need an aligned buffer; an anonymous mapping starts at a page.
        with mmap.mmap(-1, DISK_CHUNK_BYTES) as buffer, contextlib.suppress(OSError):
            done, started = 0, time.perf_counter()
            while done < DISK_BYTES and time.perf_counter() - started < seconds:
                n_read = os.preadv(descriptor, [buffer], done)
                done += n_read
                if n_read < DISK_CHUNK_BYTES:
                    break
            return done / (time.perf_counter() - started) if done else None
    finally:
        os.close(descriptor)
    return None
