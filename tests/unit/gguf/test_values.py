"""Malformed keys, values and arrays: each refused with what was seen and what is allowed."""

from __future__ import annotations

import pytest

from unit.gguf.builder import (
    ARRAY,
    BOOL,
    I32,
    STRING,
    U8,
    U64,
    Build,
    array,
    entry,
    text,
    u32,
    u64,
)
from unit.gguf.refusal import cost_of, one, refusal

ENTRIES = {
    "empty key": (
        one(entry("", U8, 1) + bytes(8)),
        "the key of metadata entry 1 of 1 has 0 bytes: allowed are 1 to 65535",
    ),
    "long key": (one(entry(b"k" * 65536, U8, 1)), "the key of metadata entry 1 of 1 has 65536 bytes: allowed are 1 to"),
    "huge key": (one(u64(2**63) + bytes(16)), f"has {2**63} bytes: allowed are 1 to 65535"),
    "key past the end": (one(u64(99) + bytes(16)), "the key of metadata entry 1 of 1 needs 99 bytes at byte 32, but"),
    "key not UTF-8": (one(entry(b"a\xff", U8, 1)), "is not valid UTF-8 (byte 0xff at position 1)"),
    "hostile key": (
        one(entry("k\n" * 500, U8, 1), entry("k\n" * 500, U8, 1)),
        "metadata key '" + "k\\n" * 30 + "'... occurs twice",
    ),
    "duplicate key": (one(entry("k", U8, 1), entry("k", U8, 2)), "metadata key 'k' occurs twice"),
    "unknown type": (one(text("k") + u32(13) + bytes(8)), "metadata 'k' has unknown type 13: allowed are 0 to 12"),
    "negative type": (one(text("k") + u32(2**32 - 1) + bytes(8)), "has unknown type 4294967295"),
    "cut number": (Build([text("k") + u32(U64) + bytes(3)]).head(), "metadata 'k' (UINT64) needs 8 bytes at byte 37"),
    "bool of 2": (one(text("k") + u32(BOOL) + b"\x02"), "metadata 'k' is a boolean with value 2: allowed are 0 and 1"),
    "text past the end": (one(text("k") + u32(STRING) + u64(99)), "metadata 'k' needs 99 bytes"),
    "huge text": (one(text("k") + u32(STRING) + u64(2**63)), f"claims a text of {2**63} bytes: allowed are at most"),
    "text not UTF-8": (
        one(entry("k", STRING, b"\xe6\xad")),
        "metadata 'k' is not valid UTF-8 (byte 0xe6 at position 0)",
    ),
}


ARRAYS = {
    "nested": (one(text("k") + u32(ARRAY) + u32(ARRAY) + u64(0)), "metadata 'k' is an array of arrays: allowed are"),
    "unknown element": (one(text("k") + u32(ARRAY) + u32(99) + u64(0)), "metadata 'k' has unknown element type 99"),
    "numbers past the end": (one(array("k", I32, [1], 9)), "metadata 'k' claims 9 elements of at least 4 bytes, but"),
    "huge count": (one(array("k", U8, [], 2**63)), f"metadata 'k' claims {2**63} elements of at least 1 bytes, but"),
    "wrapping count": (one(array("k", U64, [], 2**61)), f"metadata 'k' claims {2**61} elements of at least 8 bytes"),
    "strings past the end": (
        one(array("k", STRING, ["ab", "cd"], 3) + u64(7)),
        "metadata 'k': string 2 of 3 at byte 69 ends past the 28 bytes that remain",
    ),
    "too many strings": (one(array("k", STRING, ["ab"], 9)), "metadata 'k' claims 9 elements of at least 8 bytes"),
    "string of 2^64-1": (
        one(text("k") + u32(ARRAY) + u32(STRING) + u64(1) + u64(2**64 - 1)),
        "metadata 'k': string 0 of 1 at byte 49 ends past the 8 bytes that remain",
    ),
    "bools of 3": (
        one(text("k") + u32(ARRAY) + u32(BOOL) + u64(3) + b"\1\0\3"),
        "metadata 'k' is an array of booleans with a value 3: allowed are 0 and 1",
    ),
}


@pytest.mark.parametrize("case", [*ENTRIES.values(), *ARRAYS.values()])
def test_values_malformed_entry_is_refused_in_words(case: tuple[bytes, str]) -> None:
    data, expected = case
    assert expected in refusal(data)


def test_values_lying_array_costs_nothing() -> None:
    data = Build([text("k") + u32(ARRAY) + u32(U8) + u64(2**63)]).head()
    assert len(data) < 64
    seconds, peak = cost_of(lambda: refusal(data))
    assert seconds < 0.01
    assert peak < 1 << 20
