"""Alignments no tensor could be placed by."""

from __future__ import annotations

import pytest

from unit.gguf.builder import (
    ARRAY,
    BOOL,
    I32,
    STRING,
    U32,
    U64,
    array,
    entry,
)
from unit.gguf.refusal import one, refusal

ALIGNMENTS = {
    0: (U32, "metadata 'general.alignment' is 0: allowed are powers of two from 8 to 65536"),
    4: (U32, "is 4: allowed are powers of two"),
    13: (U32, "is 13: allowed are powers of two"),
    24: (U32, "is 24: allowed are powers of two"),
    2**30: (U32, "is 1073741824: allowed are powers of two"),
    2**32 - 1: (U32, "is 4294967295: allowed are powers of two"),
    64: (U64, "metadata 'general.alignment' has type UINT64: allowed is UINT32"),
    32: (I32, "has type INT32: allowed is UINT32"),
}


@pytest.mark.parametrize(("alignment", "case"), ALIGNMENTS.items())
def test_layout_alignments_are_refused(alignment: int, case: tuple[int, str]) -> None:
    type_id, expected = case
    assert expected in refusal(one(entry("general.alignment", type_id, alignment)))


@pytest.mark.parametrize("type_id", [STRING, BOOL, ARRAY])
def test_layout_alignment_of_another_kind_is_refused(type_id: int) -> None:
    key = "general.alignment"
    field = array(key, U32, [32]) if type_id == ARRAY else entry(key, type_id, "32" if type_id == STRING else True)
    assert "allowed is UINT32" in refusal(one(field))
