"""Objects of a JSON schema that have the properties it names and no others, where it leaves that open.

JSON schema lets every object have further members unless it says otherwise, and a small model goes on to write them.
Who wrote `name str, age int` meant these two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE = ("items", "additionalProperties")
_LISTED = ("prefixItems", "anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_OPEN = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
# Where several schemas speak of one object, each would forbid what the others ask for.
_JOINED = frozenset({"allOf", "not", "if", "then", "else", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"})
_JOINED_TO_PROPERTIES = frozenset({"$ref", "anyOf", "oneOf"})


def closed(schema: Any) -> Any:
    """A copy with `additionalProperties: false` in objects that name properties and say nothing of others.

    A schema that says of one object in several places what it has is returned as it is.
    """
    parts = list(_parts(schema))
    if any(_JOINED & each.keys() or ("properties" in each and _JOINED_TO_PROPERTIES & each.keys()) for each in parts):
        return schema
    return _closed(schema)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and those within it."""
    if isinstance(schema, dict):
        yield schema
        inner = [schema.get(name) for name in _ONE]
        inner += [each for name in _LISTED if isinstance(schema.get(name), list) for each in schema[name]]
        inner += [each for name in _NAMED if isinstance(schema.get(name), dict) for each in schema[name].values()]
        for each in inner:
            yield from _parts(each)


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name in schema:
        value = schema[name]
        if name in _ONE:
            made[name] = _closed(value)
        elif name in _LISTED and isinstance(value, list):
            made[name] = [_closed(each) for each in value]
        elif name in _NAMED and isinstance(value, dict):
            made[name] = {key: _closed(each) for key, each in value.items()}
    properties, required = schema.get("properties"), schema.get("required", ())
    if isinstance(properties, dict) and not _OPEN & schema.keys() and all(each in properties for each in required):
        made["additionalProperties"] = False
    return made
