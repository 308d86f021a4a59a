"""Malformed tensor descriptions and places: each refused with what was seen and what is allowed."""

from __future__ import annotations

import pytest

from unit.gguf.builder import (
    Build,
    tensor,
)
from unit.gguf.refusal import refusal, with_tensors

TENSORS = {
    "empty name": (with_tensors(tensor("")), "the name of tensor 1 of 1 has 0 bytes: allowed are 1 to 64"),
    "long name": (with_tensors(tensor("n" * 65)), "the name of tensor 1 of 1 has 65 bytes: allowed are 1 to 64"),
    "name not UTF-8": (with_tensors(tensor(b"\xff")), "the name of tensor 1 of 1 is not valid UTF-8"),
    "duplicate name": (
        with_tensors(tensor("t"), tensor("t", offset=32)),
        "tensor 't' occurs twice: names must be unique",
    ),
    "no dimensions": (with_tensors(tensor("t", ())), "tensor 't' has 0 dimensions: allowed are 1 to 4"),
    "five dimensions": (with_tensors(tensor("t", (1,) * 5)), "tensor 't' has 5 dimensions: allowed are 1 to 4"),
    "many dimensions": (with_tensors(tensor("t", n_dimensions=2**32 - 1)), "has 4294967295 dimensions: allowed are"),
    "zero dimension": (with_tensors(tensor("t", (8, 0))), "tensor 't' has a dimension of 0: allowed are 1 to 2^63-1"),
    "negative dimension": (with_tensors(tensor("t", (2**64 - 8,))), f"has a dimension of {2**64 - 8}: allowed are 1"),
    "wrapping product": (
        with_tensors(tensor("t", (2**33, 2**31))),
        f"tensor 't' of shape ({2**31}, {2**33}) has more than 2^63-1 elements",
    ),
    "product that wraps to 0": (with_tensors(tensor("t", (2**32, 2**32))), "has more than 2^63-1 elements"),
    "wrapping bytes": (with_tensors(tensor("t", (2**62,))), f"has {2**64} bytes, more than 2^63-1"),
    "removed type": (with_tensors(tensor("t", (32,), 4)), "tensor 't': type 4 (Q4_2) was removed from GGUF"),
    "type of a fork": (with_tensors(tensor("t", (32,), 144)), "tensor 't': type 144 (IQ4_KS) belongs to ik_llama.cpp"),
    "unknown type": (with_tensors(tensor("t", (32,), 77)), "tensor 't': type 77 is unknown"),
    "broken block": (
        with_tensors(tensor("t", (33, 2), 2)),
        "tensor 't': a row of 33 values is not a multiple of Q4_0's block of 32",
    ),
    "unaligned offset": (
        with_tensors(tensor("a"), tensor("b", offset=33)),
        "tensor 'b' has offset 33, which is not a multiple of the alignment 32",
    ),
    "overlap": (
        with_tensors(tensor("a", (16,)), tensor("b", offset=32)),
        "tensor 'b' has offset 32, which overlaps or precedes the tensors before it, which end at 64",
    ),
    "out of order": (
        with_tensors(tensor("a", offset=32), tensor("b", offset=0)),
        "tensor 'a' has offset 32, which leaves a gap after the tensors before it, which end at 0",
    ),
    "wrapping offset": (with_tensors(tensor("a"), tensor("b", offset=2**64 - 32)), "which leaves a gap after"),
    "past the end": (
        with_tensors(tensor("t", (1024,)), data=100),
        "tensor 't' ends at byte 4160, but the file has 164 bytes: it is truncated, fetch it again",
    ),
    "cut description": (
        Build([], [tensor("t" * 9)[:-1]]).head(),
        "the shape, type and offset of tensor 'ttttttttt' needs 20 bytes",
    ),
}


@pytest.mark.parametrize("case", [*TENSORS.values()])
def test_tensors_malformed_description_is_refused_in_words(case: tuple[bytes, str]) -> None:
    data, expected = case
    assert expected in refusal(data)
