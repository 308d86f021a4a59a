"""Sound files: every value type, both versions, alignments, views into the input; agreement with the gguf package."""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from emel.gguf.arrays import StringArray
from emel.gguf.parser import parse
from emel.tensor import TensorType
from model.gguf_writing import finish
from unit.gguf.builder import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Build,
    array,
    entry,
    small,
    tensor,
)
from unit.gguf.refusal import refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_parser_reads_a_small_file() -> None:
    contents = parse(small().bytes())
    assert contents.version == 3
    assert contents.alignment == 32
    assert contents.data_start % 32 == 0
    assert {key: each.type_name for key, each in contents.entries.items()} == {
        "general.architecture": "STRING",
        "a.u32": "UINT32",
        "a.f32": "FLOAT32",
        "a.yes": "BOOL",
        "a.names": "array of STRING",
        "a.ints": "array of INT32",
    }
    weight, bias = contents.tensors.values()
    assert (weight.name, weight.shape, weight.type, weight.n_bytes) == ("w", (2, 32), TensorType.Q4_0, 36)
    assert (weight.rows, weight.cols) == (2, 32)
    assert weight.offset == contents.data_start
    assert (bias.shape, bias.rows, bias.cols, bias.n_bytes) == ((3,), 1, 3, 12)
    assert bias.offset == contents.data_start + 64
    assert bias.end == len(small().bytes())


@pytest.mark.parametrize("version", [2, 3])
def test_parser_reads_both_versions(version: int) -> None:
    build = small()
    build.version = version
    assert parse(build.bytes()).version == version


def test_parser_reads_a_file_without_anything_in_it() -> None:
    contents = parse(Build().head())
    assert contents.entries == {}
    assert contents.tensors == {}


SCALARS: list[tuple[int, object]] = [
    (U8, 255),
    (I8, -128),
    (U16, 65535),
    (I16, -32768),
    (U32, 2**32 - 1),
    (I32, -(2**31)),
    (F32, 0.25),
    (BOOL, True),
    (BOOL, False),
    (STRING, "grüß"),
    (STRING, ""),
    (U64, 2**64 - 1),
    (I64, -(2**63)),
    (F64, 0.1),
]


@pytest.mark.parametrize(("type_id", "value"), SCALARS)
def test_parser_reads_every_scalar(type_id: int, value: object) -> None:
    read = parse(Build([entry("k", type_id, value)]).bytes()).entries["k"]
    assert int(read.type) == type_id
    assert read.element is None
    assert read.value == value
    assert type(read.value) is type(value)


@pytest.mark.parametrize(("type_id", "value"), [each for each in SCALARS if each[0] != STRING])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_parser_reads_every_array_at_any_address(type_id: int, value: object, count: int) -> None:
    for shift in range(4):
        contents = parse(Build([entry("s", STRING, "x" * shift), array("k", type_id, [value] * count)]).bytes())
        read = contents.entries["k"]
        assert int(read.type) == ARRAY
        assert read.element is not None
        assert int(read.element) == type_id
        assert isinstance(read.value, memoryview)
        assert read.value.tolist() == [value] * count


def test_parser_leaves_arrays_in_the_buffer() -> None:
    data = bytearray(Build([array("k", U8, [1, 2]), array("s", STRING, ["ab"])]).bytes())
    contents = parse(data)
    numbers, strings = contents.entries["k"].value, contents.entries["s"].value
    assert isinstance(numbers, memoryview)
    assert isinstance(strings, StringArray)
    data[data.index(b"\x01\x02")] = 9
    data[data.index(b"ab")] = ord("z")
    assert numbers.tolist() == [9, 2]
    assert strings[0] == "zb"


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096, 65536])
def test_parser_places_tensors_by_the_files_alignment(alignment: int) -> None:
    build = Build(
        [entry("general.alignment", U32, alignment)],
        [tensor("a", (3,), 0, 0), tensor("b", (1,), 0, max(alignment, 16))],
        bytes(max(alignment, 16) + 4),
        alignment=alignment,
    )
    contents = parse(build.bytes())
    assert contents.data_start % alignment == 0
    assert contents.tensors["b"].offset == contents.data_start + max(alignment, 16)


def test_parser_needs_no_padding_after_the_last_tensor() -> None:
    assert parse(Build([], [tensor("t", (1,))], bytes(4)).bytes()).tensors["t"].n_bytes == 4


@pytest.mark.parametrize("n_dimensions", [1, 2, 3, 4])
def test_parser_reverses_shapes(n_dimensions: int) -> None:
    sizes = (32, 2, 3, 5)[:n_dimensions]
    info = parse(Build([], [tensor("t", sizes, 8)], bytes(34 * 30)).bytes()).tensors["t"]
    assert info.shape == tuple(reversed(sizes))
    assert info.rows * info.cols == int(np.prod(sizes))
    assert info.n_bytes == 34 * info.rows


def test_parser_accepts_the_longest_names() -> None:
    contents = parse(Build([entry("k" * 65535, U8, 1)], [tensor("n" * 64, (1,))], bytes(4)).bytes())
    assert list(contents.entries) == ["k" * 65535]
    assert list(contents.tensors) == ["n" * 64]


def test_parser_takes_the_head_alone_when_told_the_file_size() -> None:
    build = Build([], [tensor("t", (1024,))])
    head = build.head()
    data_start = len(build.bytes())
    assert parse(head, data_start + 4096).tensors["t"].end == data_start + 4096


def write_with_the_gguf_package(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("x.count", 3)
    writer.add_float32("x.base", 1e4)
    writer.add_bool("x.flag", val=False)
    writer.add_array("x.tokens", ["a", "bb", "", "çé", "<|end|>"])
    writer.add_array("x.scores", [0.5, -1.5])
    writer.add_array("x.types", [1, 2, 3])
    rng = np.random.default_rng(1)
    writer.add_tensor("f32", rng.standard_normal((3, 5), dtype=np.float32))
    writer.add_tensor("f16", rng.standard_normal((2, 3, 4), dtype=np.float32).astype(np.float16))
    q8 = gguf.quants.quantize(rng.standard_normal((4, 64), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q8", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    finish(writer)


def test_parser_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "package.gguf"
    write_with_the_gguf_package(path)
    contents = parse(path.read_bytes())
    reader = gguf.GGUFReader(path)
    theirs = {key: each for key, each in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(contents.entries) == list(theirs)
    for key, field in theirs.items():
        value = contents.entries[key].value
        ours = list(value) if isinstance(value, StringArray | memoryview) else value
        assert ours == field.contents(), key
    assert list(contents.tensors) == [each.name for each in reader.tensors]
    for their in reader.tensors:
        info = contents.tensors[their.name]
        assert info.shape == tuple(reversed(their.shape.tolist()))
        assert int(info.type) == int(their.tensor_type)
        assert (info.offset, info.n_bytes) == (their.data_offset, their.n_bytes)


def test_parser_runs_on_little_endian_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    assert refusal(small().bytes()) == ("this machine is big-endian: EMEL reads GGUF on little-endian machines only")


def test_parser_float32_keeps_its_bits() -> None:
    value = parse(Build([entry("k", F32, 0.1)]).bytes()).entries["k"].value
    assert value == struct.unpack("<f", struct.pack("<f", 0.1))[0]


def test_parser_every_truncation_is_refused() -> None:
    data = small().bytes()
    for end in range(len(data)):
        line = refusal(data[:end])
        assert re.search("truncated|damaged|empty|remain", line), line


def test_parser_truncated_tensor_names_itself_and_both_sizes() -> None:
    data = small().bytes()
    assert refusal(data[:-1]) == (
        f"tensor 'b' ends at byte {len(data)}, but the file has {len(data) - 1} bytes: it is truncated, fetch it again"
    )
