"""reader.py against the header it mirrors."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from emel._native import reader

HEADER = re.sub(
    r"/\*.*?\*/",
    "",
    (Path(__file__).parents[3] / "native/include/emel_reader.h").read_text(encoding="utf-8"),
    flags=re.DOTALL,
)
SIZES = {
    "uint32_t": 4,
    "int32_t": 4,
    "uint64_t": 8,
    "emel_read_call": 8,
    "emel_advise_call": 8,
    "emel_read_calls": ctypes.sizeof(reader.ReadCalls),
    "emel_read_file": ctypes.sizeof(reader.ReadFile),
}


@pytest.mark.parametrize(
    ("name", "mirror"),
    [
        ("emel_read_calls", reader.ReadCalls),
        ("emel_read_file", reader.ReadFile),
        ("emel_reader_desc", reader.ReaderDesc),
        ("emel_read_part", reader.ReadPart),
        ("emel_read_done", reader.ReadDone),
        ("emel_read_totals", reader.ReadTotals),
    ],
)
def test_struct_has_the_fields_of_the_header_in_order(name: str, mirror: type[ctypes.Structure]) -> None:
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", HEADER, re.DOTALL)
    assert body is not None
    offset, seen = 0, []
    for kind, pointer, field in re.findall(r"(\w+)\s*(\*?)\s*(\w+);", body[1]):
        descriptor = getattr(mirror, field)
        size = 8 if pointer else SIZES[kind]
        assert (descriptor.offset, descriptor.size) == (offset, size), field
        offset += size
        seen.append(field)
    assert [field[0] for field in mirror._fields_] == seen
    assert ctypes.sizeof(mirror) == offset


def test_every_function_and_status_of_the_header_is_mirrored() -> None:
    assert set(re.findall(r"EMEL_API[^;]*?(emel_\w+)\(", HEADER)) == set(reader.PROTOTYPES)
    statuses = {name: int(value) for name, value in re.findall(r"EMEL_READ_(\w+) = (\d)", HEADER)}
    statuses.pop("AHEAD")
    statuses.pop("BEHIND")
    assert f"EMEL_READER_LANES = {reader.N_LANES} " in HEADER
    assert statuses == {status.name: int(status) for status in reader.ReadStatus}


def test_limits_are_those_of_the_native_source() -> None:
    source = (Path(__file__).parents[3] / "native/src/io/reader.h").read_text(encoding="utf-8")
    assert f"kMostRequests = {reader.MOST_REQUESTS};" in source
    assert f"kMostParts = {reader.MOST_PARTS};" in source
