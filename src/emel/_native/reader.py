"""Mirrors of native/include/emel_reader.h; tests/unit/_native/test_reader.py compares them."""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

from emel._native.abi import declare
from emel._native.library import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel._native.abi import Prototype

MOST_PARTS = 256  # of a request
MOST_REQUESTS = 32  # in flight
N_LANES = 4  # of a reader

ReadCall = CFUNCTYPE(c_int64, c_void_p, c_int32, c_void_p, c_uint64, c_uint64)
AdviseCall = CFUNCTYPE(c_int32, c_void_p, c_int32, c_uint64, c_uint64, c_int32)


class ReadStatus(IntEnum):
    """How a request ended."""

    OK = 0
    FAILED = 1
    ENDED = 2
    CANCELLED = 3


class ReadCalls(Structure):
    """The calls a reader makes of the system; the system's own where NULL."""

    _fields_ = (("context", c_void_p), ("read", ReadCall), ("advise", AdviseCall))


class ReadFile(Structure):
    """An open file."""

    _fields_ = (("n_bytes", c_uint64), ("descriptor", c_int32), ("is_direct", c_uint32))


class ReaderDesc(Structure):
    """Files, and how they are read."""

    _fields_ = (
        ("files", POINTER(ReadFile)),
        ("n_files", c_uint64),
        ("chunk_bytes", c_uint64),
        ("keeps_cache", c_uint32),
        ("reserved", c_uint32),
        ("calls", ReadCalls),
    )


class ReadPart(Structure):
    """One matrix to read and pack."""

    _fields_ = (
        ("offset", c_uint64),
        ("dst", c_void_p),
        ("dst_bytes", c_uint64),
        ("rows", c_uint64),
        ("cols", c_uint64),
        ("type", c_uint32),
        ("file", c_uint32),
    )


class ReadDone(Structure):
    """The outcome of a request."""

    _fields_ = (("ticket", c_uint64), ("status", c_int32), ("error", c_int32), ("offset", c_uint64), ("file", c_uint64))


class ReadTotals(Structure):
    """What a reader has read."""

    _fields_ = (("n_bytes", c_uint64), ("n_chunks", c_uint64))


PROTOTYPES: Mapping[str, Prototype] = {
    "emel_load": (c_int32, (c_void_p, POINTER(ReaderDesc), POINTER(ReadPart), c_uint64, POINTER(ReadDone))),
    "emel_reader_create": (c_int32, (POINTER(ReaderDesc), POINTER(c_void_p))),
    "emel_reader_submit": (c_int32, (c_void_p, c_uint64, POINTER(ReadPart), c_uint64, c_uint32)),
    "emel_reader_next": (c_int32, (c_void_p, POINTER(ReadDone))),
    "emel_reader_stop": (None, (c_void_p,)),
    "emel_reader_totals": (None, (c_void_p, POINTER(ReadTotals))),
    "emel_reader_destroy": (None, (c_void_p,)),
}


@cache
def declare_reader() -> None:
    """Sets the prototypes, once."""
    declare(LIBRARY, PROTOTYPES)
