"""The native walk over length-prefixed strings, against a plain Python one."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel._native import NativeError, check
from emel._native.addresses import held_address
from emel._native.strings import strings_scan
from emel.io.strings import StringScan, scan_strings, string_offsets


def encode(strings: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(each)) + each for each in strings)


@given(st.lists(st.binary(max_size=20), max_size=30), st.binary(max_size=10))
def test_strings_scan_ends_where_the_strings_end(strings: list[bytes], rest: bytes) -> None:
    data = encode(strings)
    assert scan_strings(memoryview(data + rest), len(strings)) == StringScan(len(strings), len(data))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=30), st.data())
def test_strings_scan_stops_before_the_first_that_does_not_fit(strings: list[bytes], data: st.DataObject) -> None:
    whole = encode(strings)
    cut = data.draw(st.integers(0, len(whole) - 1))
    n_whole = next(i for i in range(len(strings)) if len(encode(strings[: i + 1])) > cut)
    scan = scan_strings(memoryview(whole)[:cut], len(strings))
    assert scan == StringScan(n_whole, len(encode(strings[:n_whole])))


@given(st.lists(st.binary(max_size=20), max_size=30))
def test_strings_offsets_point_at_the_length_fields(strings: list[bytes]) -> None:
    offsets = string_offsets(memoryview(encode(strings)), len(strings))
    assert offsets.tolist() == [len(encode(strings[:i])) for i in range(len(strings) + 1)]


@pytest.mark.parametrize("length", [1, 2**31, 2**63, 2**64 - 8, 2**64 - 1])
def test_strings_a_lying_length_is_stopped_at(length: int) -> None:
    data = encode([b"ok"]) + struct.pack("<Q", length)
    assert scan_strings(memoryview(data), 2) == StringScan(1, 10)


@pytest.mark.parametrize("count", [1, 2**40, 2**64 - 1])
def test_strings_a_lying_count_is_stopped_at(count: int) -> None:
    assert scan_strings(memoryview(b""), count) == StringScan(0, 0)
    assert scan_strings(memoryview(b"1234567"), count) == StringScan(0, 0)


def test_strings_offsets_of_too_few_strings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^3 strings expected, 1 fit$"):
        string_offsets(memoryview(encode([b"a"])), 3)


def test_strings_scan_takes_read_only_slices() -> None:
    data = memoryview(b"xyz" + encode([b"a", b"bc"]))[3:]
    assert data.readonly
    assert scan_strings(data, 2) == StringScan(2, 19)


@pytest.mark.parametrize("missing", range(3))
def test_strings_the_native_walk_refuses_missing_arguments(missing: int) -> None:
    outputs = [ctypes.byref(ctypes.c_uint64()), ctypes.byref(ctypes.c_uint64())]
    arguments: list[Any] = [ctypes.create_string_buffer(8), *outputs]
    arguments[missing] = None
    data, consumed, n_scanned = arguments
    with pytest.raises(NativeError, match="data, consumed and n_scanned must not be NULL") as caught:
        check(strings_scan(data, 8, 1, consumed, n_scanned, None))
    assert caught.value.status == 1


def test_held_address_releases_the_buffer() -> None:
    data = bytearray(b"abc")
    with memoryview(data) as view, held_address(view) as address:
        assert address != 0
        with pytest.raises(BufferError):
            data.append(1)
    data.append(1)


def test_held_address_refuses_strided_memory() -> None:
    with pytest.raises(BufferError), held_address(memoryview(b"abcd")[::2]):
        pass
