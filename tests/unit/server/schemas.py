"""JSON schemas for tests, over 200: one of each keyword, and of the combinations that clients send."""

from __future__ import annotations

import itertools
from typing import Any

Schema = dict[str, Any] | bool

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
WORD = {"type": "string", "pattern": "^[a-z]{1,5}$"}
SMALL = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(**properties: Any) -> dict[str, Any]:
    """An object of exactly these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _types() -> list[Schema]:
    pairs = [{"type": list(pair)} for pair in itertools.combinations(TYPES, 2)]
    return [*({"type": each} for each in TYPES), *pairs, True, {}]


def _numbers() -> list[Schema]:
    bounds = [(-5, 5), (0, 0), (10, 99), (-1, 1000), (999, 1001), (-123456, -123)]
    return [
        *({"type": "integer", "minimum": low, "maximum": high} for low, high in bounds),
        *({"type": "number", "minimum": low, "maximum": high} for low, high in bounds),
        *({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": high + 2} for low, high in bounds),
        *({"type": "integer", "multipleOf": each} for each in (1, 2, 5, 7, 10)),
        {"type": "number", "multipleOf": 0.5},
        {"type": "integer", "minimum": 3},
        {"type": "integer", "maximum": -3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 10},
        {"type": "integer", "minimum": 5, "maximum": 4},
    ]


def _strings() -> list[Schema]:
    lengths = [(0, 0), (1, 1), (0, 3), (2, 5), (10, 12), (3, None)]
    patterns = ["^a+$", "^[0-9]{4}-[0-9]{2}$", "b", "^(yes|no)$", r"^\d{3}[A-Z]?$", "^.{2,4}$", "^$", "x$", "^y"]
    formats = ["date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "hostname", "uri", "duration"]
    return [
        *(
            {"type": "string", "minLength": low, **({} if high is None else {"maxLength": high})}
            for low, high in lengths
        ),
        *({"type": "string", "pattern": each} for each in patterns),
        *({"type": "string", "format": each} for each in formats),
        {"type": "string", "pattern": "^[ab]*$", "minLength": 2, "maxLength": 4},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "pattern": "("},
        {"type": "string", "format": "no-such-format"},
    ]


def _choices() -> list[Schema]:
    values: list[Any] = [
        None,
        True,
        0,
        1.5,
        "",
        "a",
        "ä",
        "日本",
        "\U0001f600",
        '"',
        "\\",
        "\n",
        [],
        {},
        [1, {"a": None}],
    ]
    return [
        *({"const": each} for each in values),
        {"enum": values},
        {"enum": ["red", "green", "blue"]},
        {"enum": [1, "1", None, True]},
        {"enum": []},
        {"type": "string", "enum": ["a", "ab", "abc"]},
        {"type": "integer", "enum": [1, 10, 100]},
        {"enum": [f"value {index}" for index in range(500)]},
    ]


def _arrays() -> list[Schema]:
    counts = [(0, 0), (1, 1), (0, 2), (2, 4), (3, None), (5, 3)]
    return [
        *(
            {"type": "array", "items": SMALL, "minItems": low, **({} if high is None else {"maxItems": high})}
            for low, high in counts
        ),
        *({"type": "array", "items": {"type": each}, "maxItems": 3} for each in TYPES),
        {"type": "array", "items": {"type": "array", "items": WORD, "maxItems": 2}, "maxItems": 2},
        {"type": "array", "prefixItems": [SMALL, WORD, {"type": "null"}], "items": False},
        {"type": "array", "prefixItems": [SMALL, WORD], "minItems": 2, "maxItems": 4},
        {"type": "array", "items": closed(x=SMALL, y=WORD), "minItems": 1, "maxItems": 2},
        {"type": "array", "items": False},
        {"type": "array", "items": SMALL, "uniqueItems": True},
        {"type": "array", "contains": SMALL},
    ]


def _objects() -> list[Schema]:
    one = {"a": SMALL, "b": WORD, "c": {"type": "boolean"}}
    required = [list(each) for n in range(4) for each in itertools.combinations(one, n)]
    return [
        *({"type": "object", "properties": one, "required": each, "additionalProperties": False} for each in required),
        *({"type": "object", "properties": one, "required": each} for each in required[:3]),
        closed(),
        closed(outer=closed(inner=closed(value=SMALL))),
        closed(**{"": SMALL, "ä": SMALL, "with space": SMALL, 'q"': SMALL, "日本": SMALL}),
        {"type": "object", "additionalProperties": SMALL},
        {"type": "object", "additionalProperties": SMALL, "maxProperties": 2},
        {"type": "object", "minProperties": 2},
        {"type": "object", "patternProperties": {"^n[0-9]$": SMALL}, "additionalProperties": False},
        {"type": "object", "propertyNames": WORD},
        {"type": "object", "required": ["unknown"]},
        {"type": "object", "properties": one, "dependentRequired": {"a": ["b"]}},
        {"properties": one, "required": ["a"]},
        closed(**{f"field_{index}": SMALL for index in range(60)}),
    ]


def _combinations() -> list[Schema]:
    a, b = closed(kind={"const": "a"}, x=SMALL), closed(kind={"const": "b"}, y=WORD)
    tree = {
        "$defs": {"node": closed(value=SMALL, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})},
        "$ref": "#/$defs/node",
    }
    return [
        {"anyOf": [SMALL, WORD]},
        {"anyOf": [a, b]},
        {"oneOf": [a, b]},
        {"oneOf": [SMALL, {"type": "null"}]},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}]},
        {"allOf": [a, b]},
        {"allOf": [{"type": "object", "properties": {"a": SMALL}, "required": ["a"]}, {"properties": {"b": WORD}}]},
        {"not": {"type": "string"}},
        {"if": {"type": "string"}, "then": WORD, "else": SMALL},
        {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "array", "items": SMALL, "maxItems": 1}]},
        {"anyOf": []},
        tree,
        {"$defs": {"s": SMALL}, "type": "array", "items": {"$ref": "#/$defs/s"}, "minItems": 2, "maxItems": 2},
        {"definitions": {"s": WORD}, **closed(w={"$ref": "#/definitions/s"})},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "#"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "description": "D", **SMALL},
        {"type": "object", "unevaluatedProperties": False, "properties": {"a": SMALL}},
        {"type": "integer", "default": 3, "examples": [1], "title": "Count", "minimum": 1, "maximum": 3},
        {"type": "no such type"},
        {"type": 7},
        {"properties": [1]},
        {"type": "string", "x-guidance": {"whitespace_pattern": "[ ]*"}},
        {**closed(a=SMALL), "x-guidance": {"whitespace_pattern": "[ ]*", "lenient": True}},
        False,
    ]


def _of_clients() -> list[Schema]:
    """As pydantic and tool definitions write them."""
    address = closed(street=WORD, number=SMALL)
    step = closed(explanation=WORD, output=WORD)
    nullable = {"anyOf": [WORD, {"type": "null"}], "default": None}
    return [
        closed(name=WORD, age={"type": "integer", "minimum": 0, "maximum": 150}, address=address),
        closed(steps={"type": "array", "items": step, "minItems": 1, "maxItems": 2}, final_answer=WORD),
        {"type": "object", "properties": {"city": WORD, "unit": {"enum": ["C", "F"]}}, "required": ["city"]},
        closed(nickname=nullable, tags={"type": "array", "items": WORD, "maxItems": 2}),
        closed(day={"type": "string", "format": "date"}, flag={"type": "boolean"}),
        {"type": "object", "properties": {}, "additionalProperties": False},
        {"type": "object", "properties": {"query": {"type": "string", "maxLength": 5}}, "required": ["query"]},
        closed(level={"enum": ["low", "high"]}, score={"type": "number", "minimum": 0, "maximum": 1}),
        closed(
            point={
                "type": "array",
                "items": {"type": "number", "minimum": -9, "maximum": 9},
                "minItems": 2,
                "maxItems": 2,
            }
        ),
        closed(matrix={"type": "array", "items": {"type": "array", "items": SMALL, "maxItems": 2}, "maxItems": 2}),
        closed(kind={"const": "event"}, at={"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"}),
        closed(value={"type": ["integer", "null"]}, label={"type": ["string", "null"], "maxLength": 4}),
    ]


def _nested() -> list[Schema]:
    """Objects of each type in each kind of place."""
    leaves: list[dict[str, Any]] = [{"type": "null"}, {"type": "boolean"}, SMALL, WORD, {"const": "é"}]
    places = (
        lambda leaf: closed(a=closed(b=leaf)),
        lambda leaf: closed(a={"type": "array", "items": leaf, "minItems": 1, "maxItems": 2}),
        lambda leaf: {"type": "array", "items": closed(a=leaf), "minItems": 1, "maxItems": 2},
        lambda leaf: {"type": "object", "properties": {"a": leaf, "b": leaf}, "additionalProperties": False},
        lambda leaf: {"anyOf": [leaf, closed(a=leaf)]},
    )
    return [place(leaf) for place in places for leaf in leaves]


SCHEMAS: list[Schema] = [
    *_types(), *_numbers(), *_strings(), *_choices(), *_arrays(), *_objects(), *_combinations(), *_of_clients(),
    *_nested(),
]  # fmt: skip
