"""What an answer must obey, in llguidance's own notation (https://github.com/guidance-ai/llguidance).

Nothing is fetched, and nothing is compiled here (emel.engine.matching). RequestError for what is none of its kind.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from emel.engine.endless_schemas import is_endless
from emel.errors import RequestError
from emel.text.errors import shown

MAX_CHARACTERS = 512 << 10
MAX_RULES = 2000
"""Of a GBNF grammar: putting them in order takes the square of their number."""
# White space between the parts of a JSON value: a small model would write nothing else for ever.
_JSON_OPTIONS = {"whitespace_pattern": r"[ \n]{0,8}"}
_COMPACT_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Wanted(NamedTuple):
    """A constraint as whoever wants it names it.

    kind: one of emel.engine.arguments.CONSTRAINTS. is_compact: no white space is up to the model.
    """

    field: str
    kind: str
    value: Any
    is_compact: bool = False


def grammar_of(wanted: Wanted) -> str:
    """The grammar of a constraint."""
    if wanted.kind == "json_schema":
        return _of_schema(wanted)
    if wanted.kind == "regex":
        return _of_regex(_text(wanted))
    if wanted.kind == "choice":
        choices = [wanted.value] if isinstance(wanted.value, str) else wanted.value
        if not isinstance(choices, list | tuple) or not choices or not all(isinstance(c, str) and c for c in choices):
            raise RequestError(
                f"{wanted.field} must be a list of texts with at least one character each: it is {shown(wanted.value)}"
            )
        return _of_regex(_short("|".join(f"({re.escape(each)})" for each in choices), wanted))
    return _of_gbnf(wanted)


def _of_regex(pattern: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_regex(pattern)


def _of_schema(wanted: Wanted) -> str:
    from llguidance import LLMatcher

    options: Any = _COMPACT_OPTIONS if wanted.is_compact else _JSON_OPTIONS
    try:
        return LLMatcher.grammar_from_json_schema(_schema(wanted), overrides=options)  # whatever the schema says of it
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"{wanted.field} is no JSON schema: {error}") from None


def _schema(wanted: Wanted) -> str:
    """The schema as text. {} is an object, as llama.cpp has it."""
    value = wanted.value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{wanted.field} is no JSON: {error}") from None
    if isinstance(value, bool):
        value = {} if value else {"not": {}}
    if not isinstance(value, dict):
        hint = "give what its model_json_schema() returns" if hasattr(value, "model_json_schema") else None
        raise RequestError(f"{wanted.field} must be a JSON schema, an object: it is {shown(value)}", hint=hint)
    if is_endless(value):
        raise RequestError(
            f"{wanted.field} cannot be used: nothing obeys it, as each value must hold another without end"
        )
    return _short(json.dumps(value or {"type": "object"}), wanted)


def _of_gbnf(wanted: Wanted) -> str:
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import gbnf_to_lark

    text = _text(wanted)
    n_rules = text.count("::=")
    if n_rules > MAX_RULES:
        raise RequestError(f"{wanted.field} has {n_rules} rules: {MAX_RULES} are allowed")
    try:
        return LLMatcher.grammar_from_lark(gbnf_to_lark(text))
    except RequestError:
        raise
    except Exception as error:  # it raises Exception itself for some of what is wrong with a grammar
        raise RequestError(f"{wanted.field} is no GBNF grammar: {' '.join(str(error).split()):.300}") from None


def _text(wanted: Wanted) -> str:
    if not isinstance(wanted.value, str) or not wanted.value:
        raise RequestError(f"{wanted.field} must be a text with at least one character: it is {shown(wanted.value)}")
    return _short(wanted.value, wanted)


def _short(text: str, wanted: Wanted) -> str:
    if len(text) > MAX_CHARACTERS:
        raise RequestError(f"{wanted.field} has {len(text)} characters: {MAX_CHARACTERS} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise RequestError(f"{wanted.field} has {half!r}, half of a surrogate pair, which is no character") from None
    return text
