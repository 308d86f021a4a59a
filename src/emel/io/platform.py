"""The platform calls of the byte sources, in one small object that tests replace to inject failures."""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Opening a pipe for reading would wait for its writer; a regular file ignores the flag.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

ADVICE = {
    "sequential": getattr(mmap, "MADV_SEQUENTIAL", None),
    "willneed": getattr(mmap, "MADV_WILLNEED", None),
    "dontneed": getattr(mmap, "MADV_DONTNEED", None),
}


class Platform:
    """Thin names for the calls of the operating system; every one may raise OSError."""

    def open(self, path: str) -> int:
        """A descriptor of the file, opened for reading."""
        return os.open(path, _OPEN_FLAGS)

    def open_direct(self, path: str) -> int:
        """The same for reads past the page cache; OSError where the file system has none."""
        flag = getattr(os, "O_DIRECT", None)
        if flag is None:
            raise OSError(errno.EINVAL, "this system has no direct reads")
        return os.open(path, _OPEN_FLAGS | flag)

    def status(self, descriptor: int) -> os.stat_result:
        """Size and kind of the open file."""
        return os.fstat(descriptor)

    def map(self, descriptor: int, n_bytes: int) -> mmap.mmap:
        """A read-only mapping of the first n_bytes; it keeps a descriptor of its own."""
        return mmap.mmap(descriptor, n_bytes, access=mmap.ACCESS_READ)

    def mapped_size(self, mapping: mmap.mmap) -> int:
        """Present size in bytes of the mapped file."""
        return mapping.size()

    def advise(self, mapping: mmap.mmap, advice: str, offset: int, n_bytes: int) -> None:
        """Tells the kernel how the range will be used; offset is a multiple of the page size."""
        option = ADVICE[advice]
        if option is not None:
            mapping.madvise(option, offset, n_bytes)

    def unmap(self, mapping: mmap.mmap) -> None:
        """Gives a mapping back; BufferError while views of it are alive."""
        mapping.close()

    def read_into(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Reads at offset into target; the bytes read, 0 at the end of the file."""
        read: Callable[[int, list[memoryview], int], int] | None = getattr(os, "preadv", None)
        if read is not None:
            return read(descriptor, [target], offset)
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, len(target))
        target[: len(data)] = data
        return len(data)

    def close(self, descriptor: int) -> None:
        """Closes the descriptor."""
        os.close(descriptor)


SYSTEM = Platform()
