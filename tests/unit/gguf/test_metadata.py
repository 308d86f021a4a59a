"""Typed getters: right types pass, wrong and missing ones say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.gguf import Metadata, MetadataError, StringArray
from emel.gguf.parser import parse
from unit.gguf.builder import BOOL, F32, F64, I8, I64, STRING, U8, U64, Build, array, entry

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA = Metadata(
    parse(
        Build(
            [
                entry("s", STRING, "text"),
                entry("u8", U8, 3),
                entry("i64", I64, -9),
                entry("f32", F32, 0.5),
                entry("f64", F64, 0.1),
                entry("yes", BOOL, True),
                array("names", STRING, ["a", "b"]),
                array("ints", I8, [-1, 2]),
                array("floats", F32, [0.5]),
                array("flags", BOOL, [True, False]),
                array("none", U64, []),
            ]
        ).head()
    ).entries
)
GETTERS: dict[str, Callable[..., object]] = {
    "a string": METADATA.get_str,
    "an integer": METADATA.get_int,
    "a float": METADATA.get_float,
    "a boolean": METADATA.get_bool,
    "an array": METADATA.get_array,
    "an array of strings": METADATA.get_strings,
    "an array of integers": METADATA.get_ints,
    "an array of floats": METADATA.get_floats,
}
TAKES = {
    "a string": {"s"},
    "an integer": {"u8", "i64"},
    "a float": {"f32", "f64", "u8", "i64"},
    "a boolean": {"yes"},
    "an array": {"names", "ints", "floats", "flags", "none"},
    "an array of strings": {"names"},
    "an array of integers": {"ints", "none"},
    "an array of floats": {"floats"},
}


def test_metadata_is_a_mapping_in_file_order() -> None:
    assert list(METADATA)[:3] == ["s", "u8", "i64"]
    assert len(METADATA) == 11
    assert METADATA["yes"] is True
    assert "s" in METADATA
    assert "t" not in METADATA
    assert METADATA.get("t") is None
    with pytest.raises(KeyError):
        METADATA["t"]


def test_metadata_getters_give_typed_values() -> None:
    assert METADATA.get_str("s") == "text"
    assert METADATA.get_int("u8") == 3
    assert METADATA.get_int("i64") == -9
    assert METADATA.get_float("f32") == 0.5
    assert METADATA.get_bool("yes") is True
    assert list(METADATA.get_strings("names")) == ["a", "b"]
    assert METADATA.get_ints("ints").tolist() == [-1, 2]
    assert METADATA.get_floats("floats").tolist() == [0.5]
    flags = METADATA.get_array("flags")
    assert isinstance(flags, memoryview)
    assert flags.tolist() == [True, False]


def test_metadata_a_float_may_be_written_as_an_integer() -> None:
    value = METADATA.get_float("u8")
    assert value == 3.0
    assert type(value) is float


@pytest.mark.parametrize("wanted", GETTERS)
def test_metadata_getters_take_their_types_and_no_other(wanted: str) -> None:
    for key in METADATA:
        if key in TAKES[wanted]:
            GETTERS[wanted](key)
            continue
        with pytest.raises(MetadataError) as caught:
            GETTERS[wanted](key, None)
        assert str(caught.value) == f"metadata {key!r} has type {METADATA.type_name(key)}: {wanted} is wanted"


@pytest.mark.parametrize("wanted", GETTERS)
@pytest.mark.parametrize("default", [None, 7, "x"])
def test_metadata_a_missing_key_gives_the_default(wanted: str, default: object) -> None:
    assert GETTERS[wanted]("missing", default) is default


@pytest.mark.parametrize("wanted", GETTERS)
def test_metadata_a_missing_key_without_default_is_an_error(wanted: str) -> None:
    with pytest.raises(MetadataError, match=f"^metadata 'missing' is missing: {wanted} is needed$"):
        GETTERS[wanted]("missing")


def test_metadata_errors_are_value_errors() -> None:
    assert issubclass(MetadataError, ValueError)


def test_metadata_names_types_in_words() -> None:
    assert METADATA.type_name("u8") == "UINT8"
    assert METADATA.type_name("names") == "array of STRING"


def test_metadata_strings_stay_in_the_buffer() -> None:
    assert isinstance(METADATA["names"], StringArray)
