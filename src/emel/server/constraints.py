"""What an answer must obey: which constraint a request names, compiled for the model by llguidance.

Exactly one of response_format, json_schema, grammar, regex, choice, structured_outputs. One that cannot be had is an
error of the client (400) before anything is generated: an answer is never without the constraint that was asked for.
Compiled ones are kept, as programs ask with the same few schemas again and again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from emel.errors import ModelClosedError
from emel.server.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.engine.model import Model
    from emel.server.served_model import ServedModel
    from emel.server.shapes import ConstrainedShape
    from emel.server.tools import ForcedCall
    from emel.text.constraint import Constraint

# White space between the parts of a JSON value: a small model would write nothing else for ever.
_JSON_OPTIONS = {"whitespace_pattern": r"[ \n]{0,8}"}
_CALL_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_VLLM_NAMES = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
_MAX_CHARACTERS = 512 << 10


class Wanted(NamedTuple):
    """A constraint as a request names it: json_schema, grammar, regex or choice."""

    field: str
    kind: str
    value: Any


def constraint_of(
    served: ServedModel, shape: ConstrainedShape, forced: ForcedCall | None = None
) -> Callable[[], Constraint] | None:
    """What makes the constraint of each answer, or None when there is none; ApiError 400 for one that cannot be had."""
    wanted = _wanted(shape)
    if forced is not None:
        wanted.append(Wanted("tool_choice", "json_schema", forced.schema))
    if not wanted:
        return None
    if len(wanted) > 1:
        raise invalid(f"{' and '.join(each.field for each in wanted)} exclude each other: give one of them")
    [one] = wanted
    return _compiled(served.model, one)


def _wanted(shape: ConstrainedShape) -> list[Wanted]:
    found = []
    if shape.response_format is not None:
        found += _of_response_format(shape)
    for name in ("json_schema", "grammar", "regex", "choice"):
        if (value := getattr(shape, name)) is not None:
            found.append(Wanted(name, name, value))
    for name, value in (shape.structured_outputs or {}).items():
        if name == "json_object" and value is True:
            found.append(Wanted("structured_outputs", "json_schema", {"type": "object"}))
        elif name not in _VLLM_NAMES:
            raise invalid(
                f"structured_outputs.{name:.40} is not supported: allowed are {', '.join(_VLLM_NAMES)}, json_object",
                "structured_outputs",
            )
        elif value is not None:
            found.append(Wanted("structured_outputs", _VLLM_NAMES[name], value))
    return found


def _of_response_format(shape: ConstrainedShape) -> list[Wanted]:
    form = shape.response_format
    assert form is not None
    if form.type == "text":
        return []
    if form.type == "json_object":
        return [Wanted("response_format", "json_schema", form.schema_ or {"type": "object"})]
    if form.type == "json_schema":
        schema = (form.json_schema or {}).get("schema", form.schema_)
        if schema is None:
            raise invalid("response_format.json_schema must have a schema", "response_format")
        return [Wanted("response_format", "json_schema", schema)]
    raise invalid(
        f"response_format.type is {form.type!r:.40}: allowed are 'text', 'json_object' and 'json_schema'",
        "response_format",
    )


def _compiled(model: Model, wanted: Wanted) -> Callable[[], Constraint]:
    from emel.server.matching import GrammarConstraint, compiled_for

    grammar = _grammar(wanted)
    try:
        first = compiled_for(model, grammar)
    except ModelClosedError:
        raise
    except ValueError as error:
        raise invalid(f"{wanted.field} cannot be used: {' '.join(str(error).split()):.500}", wanted.field) from None

    def new_constraint() -> Constraint:
        return GrammarConstraint(first.deep_copy(), model.n_vocab)

    return new_constraint


def _grammar(wanted: Wanted) -> str:
    from llguidance import LLMatcher

    if wanted.kind == "json_schema":
        schema = _as_schema(wanted)
        try:
            options: Any = _CALL_OPTIONS if wanted.field == "tool_choice" else _JSON_OPTIONS
            return LLMatcher.grammar_from_json_schema(schema, overrides=options)  # whatever the schema says of it
        except (ValueError, TypeError, RecursionError) as error:
            raise invalid(f"{wanted.field} is no JSON schema: {error}", wanted.field) from None
    if wanted.kind == "regex":
        return LLMatcher.grammar_from_regex(_text(wanted))
    if wanted.kind == "choice":
        choices = wanted.value
        if not isinstance(choices, list) or not choices or not all(isinstance(each, str) and each for each in choices):
            raise invalid(f"{wanted.field} must be a list of texts with at least one character each", wanted.field)
        return LLMatcher.grammar_from_regex(_short("|".join(f"({re.escape(each)})" for each in choices), wanted))
    return _of_gbnf(wanted)


def _as_schema(wanted: Wanted) -> str:
    value = wanted.value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise invalid(f"{wanted.field} is no JSON: {error}", wanted.field) from None
    if isinstance(value, bool):
        value = {} if value else {"not": {}}
    if not isinstance(value, dict):
        raise invalid(f"{wanted.field} must be a JSON schema, an object", wanted.field)
    return _short(json.dumps(value), wanted)


def _of_gbnf(wanted: Wanted) -> str:
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return LLMatcher.grammar_from_lark(gbnf_to_lark(_text(wanted)))
    except Exception as error:  # it raises Exception itself for some of what is wrong with a grammar
        raise invalid(f"{wanted.field} is no GBNF grammar: {' '.join(str(error).split()):.300}", wanted.field) from None


def _text(wanted: Wanted) -> str:
    if not isinstance(wanted.value, str) or not wanted.value:
        raise invalid(f"{wanted.field} must be a text", wanted.field)
    return _short(wanted.value, wanted)


def _short(text: str, wanted: Wanted) -> str:
    if len(text) > _MAX_CHARACTERS:
        raise invalid(f"{wanted.field} has {len(text)} characters: {_MAX_CHARACTERS} are allowed", wanted.field)
    return text
