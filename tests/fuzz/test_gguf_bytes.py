# Invariant: whatever the bytes are, parse returns contents that lie inside them, or raises GgufError with one line.
"""Fuzzes the parser with bytes, and with sound files damaged in one or a few places."""

from __future__ import annotations

import struct

from hypothesis import example, given, settings
from hypothesis import strategies as st

from emel.gguf.arrays import StringArray
from emel.gguf.errors import GgufError
from emel.gguf.parser import GgufContents, parse
from emel.tensor import TensorType
from unit.gguf.builder import BOOL, F32, I32, STRING, U8, U16, U64, Build, array, entry, small, tensor

SMALL = small().bytes()


def parsed(data: bytes) -> GgufContents | GgufError:
    try:
        return parse(data)
    except GgufError as error:
        return error


def check(data: bytes) -> GgufContents | None:
    """The invariant; the contents when data is a sound file."""
    contents = parsed(data)
    if isinstance(contents, GgufError):
        line = str(contents)
        assert line
        assert "\n" not in line
        assert len(line) < 500
        return None
    end = 0
    for name, info in contents.tensors.items():
        assert info.name == name
        assert info.offset % contents.alignment == 0
        assert end <= info.offset
        end = info.end
        assert end <= len(data)
        assert info.n_bytes == info.type.n_bytes(info.rows, info.cols)
    for each in contents.entries.values():
        value = each.value
        if isinstance(value, StringArray):
            assert len(list(value.iter_bytes())) == value.count
        elif isinstance(value, memoryview):
            assert value.nbytes <= len(data)
    return contents


@given(st.binary(max_size=200))
def test_fuzz_any_bytes(data: bytes) -> None:
    check(data)


@given(st.sampled_from([2, 3]), st.integers(0, 3), st.integers(0, 3), st.binary(max_size=200))
def test_fuzz_any_bytes_after_a_sound_header(version: int, n_tensors: int, n_entries: int, rest: bytes) -> None:
    check(b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_entries) + rest)


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_fuzz_changed_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for position, value in changes:
        data[position] = value
    check(bytes(data))


LIMITS = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]


@settings(max_examples=400)
@given(st.integers(0, len(SMALL) - 8), st.sampled_from(LIMITS))
def test_fuzz_changed_words(position: int, value: int) -> None:
    check(SMALL[:position] + struct.pack("<Q", value) + SMALL[position + 8 :])


@given(st.integers(0, len(SMALL)), st.integers(0, len(SMALL)), st.binary(max_size=12))
def test_fuzz_cut_and_inserted_bytes(first: int, second: int, inserted: bytes) -> None:
    low, high = sorted((first, second))
    check(SMALL[:low] + inserted + SMALL[high:])
    check(SMALL[:low] + SMALL[low:high] * 2 + SMALL[high:])


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
VALUES = st.one_of(
    st.builds(lambda key, value: entry(key, U8, value), NAMES, st.integers(0, 255)),
    st.builds(lambda key, value: entry(key, U64, value), NAMES, st.integers(0, 2**64 - 1)),
    st.builds(lambda key, value: entry(key, F32, value), NAMES, st.floats(width=32)),
    st.builds(lambda key, value: entry(key, BOOL, value), NAMES, st.booleans()),
    st.builds(lambda key, value: entry(key, STRING, value), NAMES, st.text(st.characters(codec="utf-8"), max_size=9)),
    st.builds(lambda key, value: array(key, U16, value), NAMES, st.lists(st.integers(0, 65535), max_size=5)),
    st.builds(lambda key, value: array(key, I32, value), NAMES, st.lists(st.integers(-9, 9), max_size=5)),
    st.builds(lambda key, value: array(key, STRING, value), NAMES, st.lists(st.binary(max_size=5), max_size=5)),
)


@st.composite
def sound_tensors(draw: st.DrawFn) -> tuple[list[bytes], int]:
    """Descriptions of tensors that follow each other, and the bytes they take."""
    names = draw(st.lists(NAMES.filter(lambda name: len(name.encode()) <= 64), max_size=5, unique=True))
    descriptions, offset, end = [], 0, 0
    for name in names:
        tensor_type = draw(st.sampled_from(list(TensorType)))
        sizes = (
            tensor_type.block_elements * draw(st.integers(1, 2)),
            *draw(st.lists(st.integers(1, 3), max_size=3)),
        )
        descriptions.append(tensor(name, sizes, int(tensor_type), offset))
        rows = 1
        for size in sizes[1:]:
            rows *= size
        end = offset + tensor_type.n_bytes(rows, sizes[0])
        offset = -(-end // 32) * 32
    return descriptions, end


def key_of(field: bytes) -> bytes:
    return field[: 8 + struct.unpack("<Q", field[:8])[0]]


@given(st.lists(VALUES, max_size=6, unique_by=key_of), sound_tensors())
@example([], ([], 0))
def test_fuzz_sound_files_are_read_whole(entries: list[bytes], tensors: tuple[list[bytes], int]) -> None:
    descriptions, n_bytes = tensors
    contents = check(Build(entries, descriptions, bytes(n_bytes)).bytes())
    assert contents is not None
    assert len(contents.entries) == len(entries)
    assert len(contents.tensors) == len(descriptions)


@given(st.lists(VALUES, max_size=4, unique_by=key_of), sound_tensors(), st.data())
def test_fuzz_sound_files_damaged_in_one_field(
    entries: list[bytes], tensors: tuple[list[bytes], int], data: st.DataObject
) -> None:
    descriptions, n_bytes = tensors
    whole = Build(entries, descriptions, bytes(n_bytes)).bytes()
    position = data.draw(st.integers(0, len(whole) - 4))
    width, code = data.draw(st.sampled_from([(1, "<B"), (4, "<I"), (8, "<Q")]))
    value = data.draw(st.sampled_from(LIMITS)) % 256**width
    check(whole[:position] + struct.pack(code, value) + whole[position + width :])


@given(st.lists(VALUES, max_size=4, unique_by=key_of), sound_tensors(), st.data())
def test_fuzz_sound_files_cut_short_are_refused(
    entries: list[bytes], tensors: tuple[list[bytes], int], data: st.DataObject
) -> None:
    descriptions, n_bytes = tensors
    build = Build(entries, descriptions, bytes(n_bytes))
    whole = build.bytes() if descriptions else build.head()
    assert check(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
