"""Which constraint a request names, and what comes of it on the wire.

Exactly one of response_format, json_schema, grammar, regex, choice, structured_outputs, or a call that tool_choice
demands. One that cannot be had is an error of the client (400), its `param` the field that named it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.engine.constraints import constraint_maker, one_of
from emel.engine.grammar_check import CheckerBusyError
from emel.engine.grammars import Wanted
from emel.errors import ModelClosedError, RequestError
from emel.server.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.server.served_model import ServedModel
    from emel.server.shapes import ConstrainedShape
    from emel.server.tools import ForcedCall
    from emel.text.constraint import Constraint

_VLLM_NAMES = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
# Names that others have, or had, for what an answer must obey: to pass them over would be an answer that does not.
_PASSED = frozenset(
    {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "functions", "function_call", "structural_tag"}
)


def constraint_of(
    served: ServedModel, shape: ConstrainedShape, forced: ForcedCall | None = None
) -> Callable[[], Constraint] | None:
    """What makes the constraint of each answer, or None when there is none.

    ApiError 400 for one that cannot be had; CheckerBusyError.
    """
    wanted = _wanted(shape)
    if forced is not None:
        wanted.append(Wanted("tool_choice", "json_schema", forced.schema, is_compact=True))
    if not wanted:
        return None
    model = served.model
    try:
        return constraint_maker(one_of(wanted), model.tokenizer, model.n_vocab)
    except (ModelClosedError, CheckerBusyError):
        raise
    except RequestError as error:
        raise invalid(str(error), wanted[0].field) from None


def _wanted(shape: ConstrainedShape) -> list[Wanted]:
    found = []
    for name, value in (shape.model_extra or {}).items():
        if name in _PASSED and value not in (None, "auto", "none"):
            raise invalid(f"{name} is not supported: use structured_outputs, response_format or tools", name)
    if shape.response_format is not None:
        found += _of_response_format(shape)
    for name in ("json_schema", "grammar", "regex", "choice"):
        value = getattr(shape, name)
        if value is not None and (name, value) != ("grammar", ""):  # llama.cpp's word for none
            found.append(Wanted(name, name, value))
    return found + _of_structured_outputs(shape.structured_outputs or {})


def _of_structured_outputs(given: dict[str, Any]) -> list[Wanted]:
    is_compact = given.get("disable_any_whitespace") is True
    found = []
    for name, value in given.items():
        if value is None or (value is False and name != "json") or name == "disable_any_whitespace":
            continue
        if name == "json_object" and value is True:
            found.append(Wanted("structured_outputs", "json_schema", {"type": "object"}, is_compact))
        elif name in _VLLM_NAMES:
            found.append(Wanted("structured_outputs", _VLLM_NAMES[name], value, is_compact))
        else:
            known = ", ".join((*_VLLM_NAMES, "json_object", "disable_any_whitespace"))
            raise invalid(f"structured_outputs.{name:.40} is not supported: allowed are {known}", "structured_outputs")
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
