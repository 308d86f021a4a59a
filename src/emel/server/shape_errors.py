"""What is wrong with a body that is JSON but not of its shape: pydantic's errors, in words of JSON and in one line.

https://docs.pydantic.dev/latest/errors/validation_errors/ lists the types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError

# What it must be, by the type of the error; fields in braces are those of its context.
_MUST_BE = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer of fewer digits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "number_type": "a number, which true and false are none of",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}
_SHAPES = frozenset({"str", "int", "float", "bool"})


def told(error: ValidationError) -> tuple[str, str | None]:
    """The message, and the place of the first field that is not as it must be; None is the body itself."""
    errors = error.errors(include_url=False)
    first = max(errors, key=_depth)
    places = _plain(first["loc"])
    where = _joined(places)
    name = where or "the body"
    seen, kind, context = first.get("input"), first["type"], first.get("ctx", {})
    if kind == "missing":
        return f"{name} is missing: the request needs it", where
    if kind == "bias_type":
        return f"{name}: {first['msg']}", where
    if kind in ("too_short", "string_too_short", "too_long", "string_too_long"):
        n = context.get("min_length", context.get("max_length"))
        bound = "at least" if "min_length" in context else "at most"
        what = "character" if isinstance(seen, str) else "item"
        return f"{name} is {in_json(seen)}: it must have {bound} {n} {what}{'' if n == 1 else 's'}", where
    same = [each for each in errors if _plain(each["loc"]) == places and each["type"] in _MUST_BE]
    allowed = dict.fromkeys(_MUST_BE[each["type"]].format(**each.get("ctx", {})) for each in same)
    if not allowed:
        return f"{name} is {in_json(seen)}: {first['msg'][:1].lower()}{first['msg'][1:]}", where
    return f"{name} is {in_json(seen)}: it must be {_either(list(allowed))}", where


def in_json(value: object) -> str:
    """A value that JSON brought, in its words: what is inside of lists and objects is not told."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    return shown(value)


def given(value: object) -> str:
    """The same of a field that may be missing, which for us is the same as null."""
    return "missing" if value is None else in_json(value)


def _either(many: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(many[:-1]), many[-1])))


def _joined(places: Sequence[int | str]) -> str | None:
    """messages[0].role"""
    where = "".join(f"[{each}]" if isinstance(each, int) else f".{each:.80}" for each in places)
    return where.removeprefix(".") or None


def _plain(places: Sequence[int | str]) -> list[int | str]:
    return [each for each in places if not _is_shape(each)]


def _depth(error: Any) -> tuple[Any, ...]:
    """Of the shapes a field may have, the one that what was given went furthest with is meant; else the first is."""
    places = error["loc"]
    if not any(map(_is_shape, places)):
        return ()
    return len(places), *(each for each in places if isinstance(each, int))


def _is_shape(place: int | str) -> bool:
    """Whether a place of an error is no name or index, but one of the shapes a field may have."""
    return isinstance(place, str) and (place in _SHAPES or "[" in place or "-" in place)
