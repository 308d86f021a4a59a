"""Addresses of Python buffers, and large page-aligned memory of our own."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HUGE_PAGE = 2 << 20


class _PyBuffer(ctypes.Structure):
    """Py_buffer, part of the stable ABI since Python 3.11: https://docs.python.org/3/c-api/buffer.html#c.Py_buffer."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


# Function objects of our own: prototypes set on ctypes.pythonapi's would be seen by every other module.
_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


def address_of(buffer: Buffer) -> int:
    """The address of a contiguous buffer's first byte, read-only ones included; 0 for an empty one may be anything.

    It stays valid only while the caller keeps `buffer` and neither resizes nor closes it. BufferError when the object
    is not contiguous.
    """
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), 0)  # PyBUF_SIMPLE; the failure is raised by pythonapi itself
    try:
        return int(view.buf or 0)
    finally:
        _release_buffer(ctypes.byref(view))


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
            self._map: mmap.mmap | None = mmap.mmap(-1, n_bytes)
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
