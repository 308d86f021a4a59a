"""Objects that name their properties have no others, unless the schema says so or speaks of them in several places."""

from __future__ import annotations

from typing import Any

import pytest

from emel.engine.closed_schemas import closed

TEXT = {"type": "string"}
OBJECT = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
CLOSED = {**OBJECT, "additionalProperties": False}


def test_objects_are_closed_wherever_they_are() -> None:
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": OBJECT}, "one": {"anyOf": [OBJECT, TEXT]}},
        "$defs": {"named": OBJECT},
    }
    before = repr(schema)
    assert closed(schema) == {
        "type": "object",
        "properties": {"items": {"type": "array", "items": CLOSED}, "one": {"anyOf": [CLOSED, TEXT]}},
        "$defs": {"named": CLOSED},
        "additionalProperties": False,
    }
    assert repr(schema) == before


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = {"properties": {"properties": TEXT, "allOf": TEXT, "items": OBJECT}}
    assert closed(schema) == {
        "properties": {"properties": TEXT, "allOf": TEXT, "items": CLOSED},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        True,
        "text",
        {"type": "object"},
        {**OBJECT, "additionalProperties": True},
        {**OBJECT, "additionalProperties": TEXT},
        {**OBJECT, "patternProperties": {"^x": TEXT}},
        {**OBJECT, "required": ["a", "b"]},
        {**OBJECT, "$ref": "#/$defs/other", "$defs": {"other": OBJECT}},
        {**OBJECT, "anyOf": [OBJECT, TEXT]},
        {"allOf": [OBJECT, {"properties": {"b": TEXT}}]},
        {"properties": {"deep": {"allOf": [OBJECT]}}},
        {"properties": 3, "items": 4, "anyOf": 5},
    ],
)
def test_what_says_more_of_an_object_is_as_it_was(schema: Any) -> None:
    assert closed(schema) == schema
