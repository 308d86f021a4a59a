"""Bytes of a GGUF file -> values. Pure: no file, no clock; total: every input gives contents or one GgufError.

    magic "GGUF" | version u32 | n_tensors u64 | n_entries u64
    n_entries x  key, type u32, value
    n_tensors x  name, n_dimensions u32, sizes u64 ..., type u32, offset u64
    padding | tensor data, each tensor aligned

Rules: 1. No count is believed: it is compared with the bytes that remain before anything loops or allocates by it.
2. Arrays and tensor data are views of the input; strings of an array are not made into Python objects.
The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and docs/reference/gguf.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from emel.gguf.cursor import Cursor
from emel.gguf.entries import Entry, read_entries
from emel.gguf.errors import GgufError
from emel.gguf.header import read_header
from emel.gguf.layout import align_up, alignment_of, place_tensors
from emel.gguf.tensors import TensorInfo, read_tensors
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from mmap import mmap

# Everything before the tensor data; the largest vocabularies take a tenth of it.
MAX_HEAD_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class GgufContents:
    """What a file holds; arrays in `entries` are views of the parsed buffer."""

    version: int
    alignment: int
    entries: dict[str, Entry]
    tensors: dict[str, TensorInfo]
    data_start: int

    def detached(self) -> GgufContents:
        """The same contents without views of the buffer."""
        return replace(self, entries={key: each.detached() for key, each in self.entries.items()})


def parse(buffer: bytes | bytearray | memoryview | mmap, file_bytes: int | None = None) -> GgufContents:
    """Parses a whole file, or its head when `file_bytes` gives the size of the rest too.

    Raises GgufError, and only that, for whatever the bytes are.
    """
    if sys.byteorder != "little":
        raise GgufError("this machine is big-endian: EMEL reads GGUF on little-endian machines only")
    data = memoryview(buffer).cast("B")
    cursor = Cursor(data[:MAX_HEAD_BYTES])
    header = read_header(cursor)
    entries = read_entries(cursor, header.n_entries)
    alignment = alignment_of(entries)
    tensors = read_tensors(cursor, header.n_tensors)
    data_start = align_up(cursor.position, alignment)
    total = len(data) if file_bytes is None else file_bytes
    return GgufContents(
        header.version, alignment, entries, place_tensors(tensors, data_start, alignment, total), data_start
    )
