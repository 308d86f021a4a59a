"""What an answer must obey: one of json_schema, grammar, regex and choice, compiled for the model's vocabulary.

One that cannot be had is a RequestError before anything is generated: an answer is never without the constraint that
was asked for. Compiled ones are kept, as programs ask with the same few schemas again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.engine.arguments import CONSTRAINTS
from emel.engine.grammars import Wanted, grammar_of
from emel.errors import ModelClosedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emel.text.constraint import Constraint
    from emel.text.tokenizer import Tokenizer


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
        raise RequestError(f"{wanted.field} cannot be used: {_reason(error)}") from None
    return lambda: GrammarConstraint(first.deep_copy(), n_vocab)


def _reason(error: ValueError) -> str:
    text = " ".join(str(error).split())
    if "coerce_one_of" in text:  # advice for those who call llguidance
        return "one value may obey several alternatives of its oneOf, which cannot be excluded: use anyOf"
    return f"{text:.500}"
