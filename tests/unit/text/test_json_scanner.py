"""JSON as it is written: every valid value is told as Python writes it, however it is cut; no other is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.answers.json_scanner import JsonScanner

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def scanned(*chunks: str) -> tuple[str, str, JsonScanner]:
    scanner = JsonScanner()
    told, rest = "", ""
    for chunk in chunks:
        if rest:
            rest += chunk
            continue
        piece, rest = scanner.feed(chunk)
        told += piece
    return told, rest, scanner


@given(OBJECTS, st.sampled_from([None, 1]), st.booleans())
def test_every_value_is_told_as_python_writes_it(value: Any, indent: int | None, is_ascii: bool) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    expected = json.dumps(value, ensure_ascii=is_ascii)
    for chunks in ([written + "}x"], [*written, "}", "x"]):
        told, rest, scanner = scanned(*chunks)
        assert (told, rest) == (expected, "}x")
        assert scanner.is_done
        assert not scanner.is_broken


@given(st.text(alphabet='{}[]",:0123.-etrufalsn\\ \n', max_size=14))
def test_what_is_no_json_is_not_whole(text: str) -> None:
    told, rest, scanner = scanned("{" + text)
    assert scanned("{", *text)[:2] == (told, rest)
    try:
        json.JSONDecoder(strict=False).raw_decode("{" + text)
    except ValueError:
        assert not scanner.is_done
    else:
        assert scanner.is_done
        json.loads(told)


@pytest.mark.parametrize(
    "text", ['{"a": 01}', '{"a": NaN}', '{"a": 1 2}', "{,}", '{"a" "b"}', '{"a": "\\x"}', "[1}", "{]"]
)
def test_what_breaks_it_is_the_rest(text: str) -> None:
    told, rest, scanner = scanned(text)
    assert scanner.is_broken
    assert (told + rest).replace(" ", "") == text.replace(" ", "")


def test_levels_and_digits_are_bounded() -> None:
    assert scanned("[" * 128)[2].is_broken is False
    assert scanned("[" * 129)[2].is_broken
    told, rest, scanner = scanned("[" + "1" * 401 + "]")
    assert scanner.is_broken
    assert (told, rest) == ("[", "1" * 401 + "]")


def test_inside_of_an_object_it_ends_with_the_object() -> None:
    scanner = JsonScanner(is_inside=True)
    assert scanner.feed(', "id": {"x": 1}} rest') == (', "id": {"x": 1}}', " rest")
