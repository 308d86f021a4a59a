"""Large page-aligned memory of our own, int32 arrays in it, and addresses of Python buffers."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any

from emel._native.addresses import address_of

__all__ = ["Memory", "address_of", "int32_array"]

_HUGE_PAGE = 2 << 20
# Python's default is shared memory: no huge pages where the administrator does not allow them for it (hardly anywhere
# they are allowed), pages that stay when they are given up, and a forked child that writes into its parent's.
_FLAGS = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}


class Memory:
    """`n_bytes` of zeroed, page-aligned anonymous memory; pages cost nothing until they are touched.

    With `is_huge` it asks for huge pages: fewer faults and address translations for what is used from end to end,
    wasted memory for what is touched here and there. `close` gives the memory back at once, or with
    the last view of it where one is held.
    """

    __slots__ = ("_map", "address", "n_bytes")

    def __init__(self, n_bytes: int, *, is_huge: bool = False) -> None:
        if n_bytes < 1:
            raise ValueError(f"cannot allocate {n_bytes} bytes: at least 1 is needed")
        try:
            self._map: mmap.mmap | None = mmap.mmap(-1, n_bytes, **_FLAGS)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"cannot allocate {n_bytes} bytes: {error}") from error
        self.n_bytes = n_bytes
        self.address = address_of(self._map)
        if is_huge and n_bytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:  # a kernel without huge pages: slower, not wrong
                return

    def view(self, format: str = "B", offset: int = 0, n_bytes: int | None = None) -> memoryview[Any]:  # noqa: A002 - struct's word
        """A writable view of the bytes [offset, offset + n_bytes) as items of a `struct` format.

        ValueError for bytes outside, and once closed.
        """
        if self._map is None:
            raise ValueError("this memory was given back")
        end = self.n_bytes if n_bytes is None else offset + n_bytes
        if not 0 <= offset <= end <= self.n_bytes:
            raise ValueError(f"bytes {offset} to {end} are outside a memory of {self.n_bytes} bytes")
        return memoryview(self._map)[offset:end].cast(format)  # type: ignore[call-overload,no-any-return]

    def discard(self, offset: int, n_bytes: int) -> None:
        """Gives the whole pages of a range back to the system; they read as zeros, and cost nothing until touched."""
        if self._map is None:
            raise ValueError("this memory was given back")
        begin = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = min(offset + n_bytes, self.n_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < end and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    @property
    def is_closed(self) -> bool:
        """Whether the memory was given back."""
        return self._map is None

    def close(self) -> None:
        """Gives the memory back; harmless when repeated."""
        mapping, self._map, self.address = self._map, None, 0
        if mapping is not None:
            with suppress(BufferError):  # a view is held: the system gets it with the last one
                mapping.close()


def int32_array(n: int) -> memoryview[int]:
    """`n` zeroed int32 values of fixed address, indexable and sliceable without conversions."""
    return memoryview(bytearray(4 * max(n, 1))).cast("i")
