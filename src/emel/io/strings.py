"""Scans arrays of length-prefixed strings natively: no Python time per string."""

from __future__ import annotations

import array
import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel._native.library import NativeError, check
from emel._native.strings import strings_scan

if TYPE_CHECKING:
    from collections.abc import Iterator

_OUT_OF_BOUNDS = 4


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer, https://docs.python.org/3/c-api/buffer.html#c.Py_buffer."""

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


@contextmanager
def address_of(view: memoryview) -> Iterator[int]:
    """Address of the first byte of a contiguous buffer, valid inside the block.

    ctypes' own `from_buffer` refuses read-only memory, such as a mapping.
    """
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        yield buffer.buf or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


@dataclass(frozen=True, slots=True)
class StringScan:
    """How far a scan came: strings that fit, and their bytes (all of them when n_scanned is the count asked for)."""

    n_scanned: int
    n_bytes: int


def scan_strings(data: memoryview, count: int) -> StringScan:
    """Walks up to `count` strings, each a uint64 length and its bytes, and stops before the first that does not fit."""
    return _scan(data, count, 0)


def string_offsets(data: memoryview, count: int) -> array.array[int]:
    """Where each of the `count` strings in data starts (at its length field), then where the last one ends."""
    offsets = array.array("Q", bytes(8 * (count + 1)))
    scan = _scan(data, count, offsets.buffer_info()[0])
    if scan.n_scanned != count:
        raise ValueError(f"{count} strings expected, {scan.n_scanned} fit")
    return offsets


def _scan(data: memoryview, count: int, offsets_address: int) -> StringScan:
    consumed, n_scanned = ctypes.c_uint64(), ctypes.c_uint64()
    with address_of(data) as address:
        try:
            check(
                strings_scan(
                    address,
                    data.nbytes,
                    count,
                    ctypes.byref(consumed),
                    ctypes.byref(n_scanned),
                    offsets_address or None,
                )
            )
        except NativeError as error:
            if error.status != _OUT_OF_BOUNDS:
                raise
    return StringScan(n_scanned.value, consumed.value)
