"""What every request's body is checked against: numbers are numbers, and one fault is enough."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_MOST_CHARACTERS = 60
_OTHERS = frozenset({"n_keep"})  # llama.cpp's, which is no min_keep


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


@cache
def _names(shape: type[Shape]) -> tuple[str, ...]:
    """Of all fields, by which clients may give them."""
    names: list[str] = []
    for name, field in shape.model_fields.items():
        alias = field.validation_alias
        names += [str(each) for each in alias.choices] if isinstance(alias, AliasChoices) else [str(alias or name)]
    return tuple(names)


@lru_cache(1000)
def _nearest(shape: type[Shape], name: str) -> str | None:
    return next(iter(get_close_matches(name, _names(shape), n=1, cutoff=0.8)), None)


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

    @classmethod
    def nearest(cls, name: str) -> str | None:
        """The field that a name is nearly, if there is one."""
        return None if len(name) > _MOST_CHARACTERS or name in _OTHERS else _nearest(cls, name)

    def unknown(self) -> list[str]:
        """Names of fields that mean nothing here."""
        return sorted(self.model_extra or ())
