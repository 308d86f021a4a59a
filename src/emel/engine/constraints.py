"""What an answer must obey: one of json_schema, grammar, regex and choice, compiled for the model's vocabulary.

One that cannot be had is a RequestError before anything is generated: an answer is never without the constraint that
was asked for. Compiled ones are kept, as programs ask with the same few schemas again and again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emel.engine.arguments import CONSTRAINTS
from emel.engine.grammars import Wanted, grammar_of
from emel.errors import ModelClosedError, RequestError
from emel.text.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emel.text.constraint import Constraint
    from emel.text.tokenizer import Tokenizer

_NO_TYPE = "Invalid type: "  # llguidance's words
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def made_constraint(options: Mapping[str, Any], tokenizer: Tokenizer, n_vocab: int) -> dict[str, Any]:
    """The keywords of a request with `new_constraint` in place of what names a constraint, if something does."""
    rest = {name: value for name, value in options.items() if name not in CONSTRAINTS}
    wanted = [Wanted(kind, kind, options[kind]) for kind in CONSTRAINTS if options.get(kind) is not None]
    if wanted:
        if rest.get("new_constraint") is not None:
            raise RequestError(f"{wanted[0].field} and new_constraint exclude each other: give one of them")
        rest["new_constraint"] = constraint_maker(one_of(wanted), tokenizer, n_vocab)
    return rest


def one_of(wanted: Sequence[Wanted]) -> Wanted:
    """The only one there is; RequestError when there are more."""
    if len(wanted) > 1:
        raise RequestError(f"{' and '.join(each.field for each in wanted)} exclude each other: give one of them")
    return wanted[0]


def constraint_maker(wanted: Wanted, tokenizer: Tokenizer, n_vocab: int) -> Callable[[], Constraint]:
    """What makes the constraint of each answer. RequestError for one that cannot be had, CheckerBusyError."""
    try:
        from emel.engine.matching import GrammarConstraint, compiled_for
    except ImportError as error:
        raise RequestError(
            f"{wanted.field} needs the package {error.name}", hint="pip install 'emel[constraints]'"
        ) from None
    grammar = grammar_of(wanted)
    try:
        first = compiled_for(tokenizer, n_vocab, grammar)
    except (ModelClosedError, RequestError):
        raise
    except ValueError as error:
        raise RequestError(f"{wanted.field} cannot be used: {_reason(error, wanted)}") from None
    return lambda: GrammarConstraint(first.deep_copy(), n_vocab)


def _reason(error: ValueError, wanted: Wanted) -> str:
    text = " ".join(str(error).split())
    if "coerce_one_of" in text:  # advice for those who call llguidance
        return "one value may obey several alternatives of its oneOf, which cannot be excluded: use anyOf"
    if wanted.kind == "json_schema" and text.startswith(_NO_TYPE):
        name = text.removeprefix(_NO_TYPE)
        place = _place_of_type(json.loads(wanted.value) if isinstance(wanted.value, str) else wanted.value, name)
        return f"{place} is {shown(name)}: allowed are {', '.join(_TYPES)}"
    return f"{text:.500}"


def _place_of_type(schema: Any, name: str) -> str:
    """Where a schema has a type of that name, such as properties.a.type."""
    waiting = [(schema, "")]
    while waiting:
        node, place = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == name or (isinstance(node.get("type"), list) and name in node["type"]):
                return f"{place:.200}type of its schema"
            waiting += [(each, f"{place}{key:.60}.") for key, each in reversed(node.items())]
        elif isinstance(node, list):
            waiting += [(each, f"{place}{index}.") for index, each in reversed([*enumerate(node)])]
    return "a type of its schema"
