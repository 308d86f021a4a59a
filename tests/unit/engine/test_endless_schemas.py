"""A schema is endless when every value would have to hold another one."""

from __future__ import annotations

from typing import Any

import pytest

from emel.engine.endless_schemas import is_endless


def holding(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


SELF = {"$ref": "#"}
ENDLESS: dict[str, Any] = {
    "itself": SELF,
    "property": holding(SELF),
    "item": {"type": "array", "items": SELF, "minItems": 1},
    "first item": {"type": "array", "prefixItems": [SELF], "minItems": 1},
    "all": {"allOf": [SELF, {"type": "null"}]},
    "each of any": {"anyOf": [holding(SELF), {"type": "array", "items": SELF, "minItems": 2}]},
    "by turns": {
        "$defs": {"x": holding({"$ref": "#/$defs/y~1z"}), "y/z": holding({"$ref": "#/$defs/x"})},
        "$ref": "#/$defs/x",
    },
    "object or list": holding(SELF, items=SELF, minItems=1, type=["object", "array"]),
    "of its own place": holding({"$id": "urn:inner", **holding(SELF)}),
}
FINITE: dict[str, Any] = {
    "nothing said": {},
    "true": True,
    "false": False,
    "property that may be left out": {"type": "object", "properties": {"a": SELF}},
    "empty list": {"type": "array", "items": SELF},
    "or nothing": holding({"anyOf": [SELF, {"type": "null"}]}),
    "or a text": holding(SELF, type=["object", "string"]),
    "no type": {"properties": {"a": SELF}, "required": ["a"]},
    "constant": {"const": 1, "$ref": "#"},
    "elsewhere": holding({"$ref": "https://example.com/x"}),
    "nowhere": holding({"$ref": "#/nowhere"}),
    "no index of a list": holding({"$ref": "#/examples/\N{SUPERSCRIPT TWO}"}, examples=[SELF, SELF, SELF]),
    "of its own place": holding({"$id": "urn:inner", "type": "object", "properties": {"a": SELF}}),
    "no schemas": {"type": 5, "required": 3, "properties": [], "anyOf": {}, "minItems": "x", "$ref": 1},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_holds_itself_without_end_is_endless(name: str) -> None:
    assert is_endless(ENDLESS[name])


@pytest.mark.parametrize("name", FINITE)
def test_what_has_a_value_is_not(name: str) -> None:
    assert not is_endless(FINITE[name])


def test_a_deep_one_takes_no_stack() -> None:
    schema: Any = {"type": "null"}
    for _ in range(100):
        schema = holding(schema)
    assert not is_endless(schema)
    for _ in range(5_000):
        schema = holding(schema)
    assert not is_endless(schema)
