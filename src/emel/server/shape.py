"""What every request's body is checked against: numbers are numbers, and one fault is enough."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


def _end_at_first(schema: Any) -> None:
    parts = list(schema.values()) if isinstance(schema, dict) else schema
    for part in parts:
        if isinstance(part, dict | list | tuple):
            _end_at_first(part)
    if isinstance(schema, dict) and schema.get("type") in ("list", "tuple"):
        schema["fail_fast"] = True


@cache
def _numbers(shape: type[Shape]) -> frozenset[str]:
    """The fields that are numbers, or lists of them, and take no switch."""
    return frozenset(
        name
        for name, field in shape.model_fields.items()
        if (kinds := _plain_kinds(field.annotation)) & {int, float} and bool not in kinds
    )


def _plain_kinds(annotation: Any) -> set[Any]:
    inner = get_args(annotation)
    return set().union(*map(_plain_kinds, inner)) if inner else {annotation}


class Shape(BaseModel):
    """A request. Unknown fields are kept, to be named in the log; null is the same as not given."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:
        """Of a list the first thing that is wrong is told: of a million, all would take a minute and gigabytes."""
        schema = handler(source)
        _end_at_first(schema)
        return schema

    @field_validator("*", mode="before")
    @classmethod
    def check_no_switch_for_a_number(cls, value: Any, info: Any) -> Any:
        """True is no 1, though Python has it so."""
        if isinstance(value, bool) and info.field_name in _numbers(cls):
            raise PydanticCustomError("number_type", "a number is needed, which true and false are none of")
        return value

    def unknown(self) -> list[str]:
        """Names of fields that mean nothing here."""
        return sorted(self.model_extra or ())
