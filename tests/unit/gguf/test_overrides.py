"""Metadata given instead of the file's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.gguf import MetadataError, open_gguf, parse_override

if TYPE_CHECKING:
    from pathlib import Path

    from emel.gguf import Scalar


def test_overrides_stand_in_place_of_the_files_and_beside_them(model: Path) -> None:
    overrides: dict[str, Scalar] = {"a.u32": 9, "a.f32": 2, "a.yes": False, "general.architecture": "qwen2", "new": 1.5}
    with open_gguf(model, overrides=overrides) as file:
        metadata = file.metadata
        assert (metadata.get_int("a.u32"), metadata.get_float("a.f32"), metadata.get_bool("a.yes")) == (9, 2.0, False)
        assert (metadata.get_str("general.architecture"), metadata.get_float("new")) == ("qwen2", 1.5)
        assert list(metadata.get_ints("a.ints")) == [1, -2, 3]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("a.u32", 1.5, "override of 'a.u32' is FLOAT64, the file has UINT32"),
        ("a.u32", True, "override of 'a.u32' is BOOL, the file has UINT32"),
        ("a.yes", 1, "override of 'a.yes' is INT64, the file has BOOL"),
        ("a.f32", "x", "override of 'a.f32' is STRING, the file has FLOAT32"),
        ("a.ints", 1, "override of 'a.ints' is INT64, the file has array of INT32"),
        ("k" * 128, 1, "has 128 bytes: 1 to 127 are allowed"),
        ("", 1, "override key '' has 0 bytes: 1 to 127 are allowed"),
        ("text", "é" * 64, "override of 'text' has 128 bytes: at most 127 are allowed"),
        ("big", 2**63, "override of 'big' is 9223372036854775808: integers of 64 bits are allowed"),
        ("list", [1], "override of 'list' is a list: int, float, bool and str are allowed"),
        ("general.alignment", 64, "'general.alignment' says how the file is read: it cannot be overridden"),
        ("split.count", 1, "'split.count' says how the file is read: it cannot be overridden"),
    ],
)
def test_overrides_refuse_what_cannot_be_said(model: Path, key: str, value: Scalar, message: str) -> None:
    with pytest.raises(MetadataError) as caught:
        open_gguf(model, overrides={key: value})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=int:-5", ("a.b", -5)),
        ("a=float:1e-6", ("a", 1e-6)),
        ("a=bool:true", ("a", True)),
        ("a=bool:false", ("a", False)),
        ("a=str:x=y:z", ("a", "x=y:z")),
        ("a=str:", ("a", "")),
    ],
)
def test_parse_override_reads_typed_values(text: str, expected: tuple[str, Scalar]) -> None:
    key, value = parse_override(text)
    assert (key, value, type(value)) == (*expected, type(expected[1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "'a' is no override: KEY=TYPE:VALUE with the types int, float, bool, str"),
        ("a=5", "'a=5' is no override"),
        ("=int:5", "'=int:5' is no override"),
        ("a=i32:5", "override of 'a' has type 'i32': KEY=TYPE:VALUE"),
        ("a=int:five", "override of 'a': 'five' is no int"),
        ("a=int:1.5", "override of 'a': '1.5' is no int"),
        ("a=float:", "override of 'a': '' is no float"),
        ("a=bool:1", "override of 'a': a bool is true or false, not '1'"),
    ],
)
def test_parse_override_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(MetadataError) as caught:
        parse_override(text)
    assert message in str(caught.value)
