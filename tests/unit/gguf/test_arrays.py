"""StringArray: lazy, indexed like a list, bytes without decoding."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.gguf import GgufError, StringArray


def array_of(strings: list[bytes]) -> StringArray:
    raw = b"".join(struct.pack("<Q", len(each)) + each for each in strings)
    return StringArray(len(strings), memoryview(raw))


@given(st.lists(st.text(max_size=8), max_size=20), st.slices(20))
def test_string_array_is_like_a_list(strings: list[str], part: slice) -> None:
    array = array_of([each.encode("utf-8", "surrogatepass") for each in strings if each.isprintable()])
    expected = [each for each in strings if each.isprintable()]
    assert len(array) == array.count == len(expected)
    assert list(array) == expected
    assert array[part] == expected[part]
    assert [array[i] for i in range(-len(expected), len(expected))] == expected * 2
    assert list(array.iter_bytes()) == [each.encode() for each in expected]


@pytest.mark.parametrize("index", [3, -4, 2**70])
def test_string_array_indices_are_bounded(index: int) -> None:
    array = array_of([b"a", b"b", b"c"])
    with pytest.raises(IndexError, match=f"^string {index} of 3$"):
        array[index]
    with pytest.raises(IndexError):
        array.bytes_at(index)


def test_string_array_decodes_on_access_only() -> None:
    array = array_of([b"ok", b"\xe6\xad"])
    assert array.bytes_at(1) == b"\xe6\xad"
    with pytest.raises(GgufError, match=r"^string 1 of 2 is not valid UTF-8: b'\\xe6\\xad'$"):
        array[1]


def test_string_array_empty() -> None:
    array = array_of([])
    assert list(array) == []
    assert array.offsets.tolist() == [0]


def test_string_array_repr_is_short() -> None:
    assert repr(array_of([b"abc"] * 1000)) == "StringArray(count=1000, n_bytes=11000)"
