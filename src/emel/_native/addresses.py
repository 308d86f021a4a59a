"""Where the bytes of Python buffers lie, read-only ones included (ctypes' own `from_buffer` refuses those)."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer


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


@contextmanager
def held_address(buffer: Buffer) -> Iterator[int]:
    """The address of a contiguous buffer's first byte; the buffer is held, so that it stays valid inside the block.

    0 for an empty one may be anything. BufferError when the object is not contiguous.
    """
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), 0)  # PyBUF_SIMPLE; the failure is raised by pythonapi itself
    try:
        yield int(view.buf or 0)
    finally:
        _release_buffer(ctypes.byref(view))


def address_of(buffer: Buffer) -> int:
    """The same without holding: valid only while the caller keeps `buffer` and neither resizes nor closes it."""
    with held_address(buffer) as address:
        return address
