"""Files that are no GGUF, versions, counts: each refused with what was seen and what is allowed."""

from __future__ import annotations

import pytest

from unit.gguf.builder import (
    Build,
    u64,
)
from unit.gguf.refusal import refusal

NOT_GGUF = {
    b"": "the file is empty (0 bytes): fetch it again",
    b"GG": "the file has only 2 bytes: it is truncated, fetch it again",
    b"abcdefgh": "not a GGUF file: it starts with b'abcd' instead of b'GGUF'",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n": "looks like a git-lfs pointer: fetch the file",
    b"PK\x03\x04 archive": "looks like a zip archive or PyTorch checkpoint",
    b"<!DOCTYPE html><html>": "looks like a web page",
    b"\n <html lang='en'>": "looks like a web page",
    u64(2) + b"{}": "not a GGUF file",
    u64(30) + b'{"model.weight": {': "looks like a safetensors file",
    b'{"error": "not found"}': "looks like JSON",
    b"\x80\x02ctorch": "looks like a Python pickle",
    b"\x1f\x8b\x08data": "looks like gzip data",
    b"tjgg\x01\0\0\0": "looks like a model in the old GGJT format",
    b"FUGG\0\0\0\3": "looks like a big-endian GGUF",
    bytes(40): "it is all zeros: an unfinished download",
}


@pytest.mark.parametrize(("data", "expected"), NOT_GGUF.items())
def test_header_foreign_files_are_named(data: bytes, expected: str) -> None:
    assert expected in refusal(data)


VERSIONS = {
    0: "GGUF version 0 does not exist: allowed are 2 and 3",
    1: "GGUF version 1 is no longer read: allowed are 2 and 3",
    4: "GGUF version 4 is newer than EMEL knows: allowed are 2 and 3, update EMEL",
    0x01020304: "GGUF version 16909060 is newer than EMEL knows",
    0x03000000: "version reads as 0x03000000: this is a big-endian GGUF",
    0x02000000: "this is a big-endian GGUF",
}


@pytest.mark.parametrize(("version", "expected"), VERSIONS.items())
def test_header_versions_are_refused(version: int, expected: str) -> None:
    assert expected in refusal(Build(version=version).bytes())


COUNTS = {
    "negative tensors": (Build(n_tensors=-1).bytes(), "the number of tensors is negative (-1)"),
    "negative entries": (Build(n_entries=-5).bytes(), "the number of metadata entries is negative (-5)"),
    "too many tensors": (
        Build(n_tensors=2**40).bytes(),
        f"the file claims {2**40} tensors, which cannot fit the 8 bytes that remain",
    ),
    "too many entries": (Build(n_entries=2**40).bytes(), f"the file claims {2**40} metadata entries, which cannot"),
    "both together": (
        Build([bytes(40)], n_entries=1, n_tensors=1).head(),
        "the file claims 1 tensors, which cannot fit the 40 bytes that remain",
    ),
}


@pytest.mark.parametrize("case", [*COUNTS.values()])
def test_header_count_is_refused_in_words(case: tuple[bytes, str]) -> None:
    data, expected = case
    assert expected in refusal(data)
