"""Scans arrays of length-prefixed strings natively: no Python time per string."""

from __future__ import annotations

import array
import ctypes

from emel._native.addresses import held_address
from emel._native.library import NativeError, check
from emel._native.strings import strings_scan
from emel.lazy_dataclasses import dataclass

_OUT_OF_BOUNDS = 4


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
    with held_address(data) as address:
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
