"""The fixed head of a GGUF file, and what a file that is none looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.gguf.errors import GgufError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.gguf.cursor import Cursor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_INT64_MAX = 2**63 - 1

# the least a metadata entry (key of one byte, value of one byte) and a tensor (name of one byte, one dimension) take
_MIN_ENTRY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8

# first bytes: what the file looks like and what to do
_LOOKALIKES = (
    (b"version https://git-lfs", "a git-lfs pointer: fetch the file itself with `git lfs pull`"),
    (b"FUGG", "a big-endian GGUF: EMEL reads little-endian files, convert it"),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint: unpack or convert it"),
    (b"\x1f\x8b", "gzip data: unpack it"),
    (b"BZh", "bzip2 data: unpack it"),
    (b"\xfd7zXZ\x00", "xz data: unpack it"),
    (b"\x28\xb5\x2f\xfd", "zstandard data: unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive: unpack it"),
    (b"\x80", "a Python pickle: convert the model to GGUF"),
    (b"lmgg", "a model in the old GGML format: convert it to GGUF"),
    (b"tjgg", "a model in the old GGJT format: convert it to GGUF"),
    (b"fmgg", "a model in the old GGMF format: convert it to GGUF"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "an HDF5 file: convert the model to GGUF"),
)


@dataclass(frozen=True, slots=True)
class Header:
    """Version and the two counts that say what follows."""

    version: int
    n_tensors: int
    n_entries: int


def read_header(cursor: Cursor) -> Header:
    """Takes magic, version and counts; GgufError unless EMEL reads this version and the counts can be true."""
    _check_magic(cursor.data)
    cursor.position = len(MAGIC)
    version = cursor.take_u32("the version")
    _check_version(version)
    n_tensors = _take_count(cursor, "tensors")
    n_entries = _take_count(cursor, "metadata entries")
    _check_room(cursor, n_tensors, n_entries)
    return Header(version, n_tensors, n_entries)


def _check_magic(data: memoryview) -> None:
    start = bytes(data[:64])
    if start[:4] == MAGIC:
        return
    if not start:
        raise GgufError("the file is empty (0 bytes): fetch it again")
    if len(start) < len(MAGIC) and MAGIC.startswith(start):
        raise GgufError(f"the file has only {len(start)} bytes: it is truncated, fetch it again")
    raise GgufError(f"not a GGUF file: it starts with {start[:4]!r} instead of {MAGIC!r}{_looks_like(start)}")


def _looks_like(start: bytes) -> str:
    for prefix, description in _LOOKALIKES:
        if start.startswith(prefix):
            return f"; it looks like {description}"
    if start[8:10] in {b'{"', b"{ "}:
        return "; it looks like a safetensors file: emel convert makes a GGUF file of its folder"
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "; it looks like a web page: the download gave an error page, fetch it again"
    if text.startswith((b"{", b"[")):
        return "; it looks like JSON: name the model file itself"
    if not start.strip(b"\0"):
        return "; it is all zeros: an unfinished download, fetch it again"
    return ""


def _check_version(version: int) -> None:
    if version in VERSIONS:
        return
    if version & 0xFFFF == 0 and version != 0:
        raise GgufError(
            f"version reads as {version:#010x}: this is a big-endian GGUF, EMEL reads little-endian files, convert it"
        )
    allowed = " and ".join(str(each) for each in VERSIONS)
    if version > max(VERSIONS):
        raise GgufError(f"GGUF version {version} is newer than EMEL knows: allowed are {allowed}, update EMEL")
    if version == 1:
        raise GgufError(f"GGUF version 1 is no longer read: allowed are {allowed}, convert the model again")
    raise GgufError(f"GGUF version {version} does not exist: allowed are {allowed}, the file is damaged")


def _take_count(cursor: Cursor, what: str) -> int:
    count = cursor.take_u64(f"the number of {what}")
    if count > _INT64_MAX:
        raise GgufError(f"the number of {what} is negative ({count - 2**64}): the file is damaged")
    return count


def _check_room(cursor: Cursor, n_tensors: int, n_entries: int) -> None:
    n_left = cursor.remaining
    too_much = ""
    if n_entries > n_left // _MIN_ENTRY_BYTES:
        too_much = f"{n_entries} metadata entries"
    elif n_tensors > (n_left - n_entries * _MIN_ENTRY_BYTES) // _MIN_TENSOR_BYTES:
        too_much = f"{n_tensors} tensors"
    if too_much:
        raise GgufError(
            f"the file claims {too_much}, which cannot fit the {n_left} bytes that remain: it is truncated or damaged"
        )
