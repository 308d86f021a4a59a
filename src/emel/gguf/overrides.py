"""Metadata given instead of a file's: typed values by key, from code or from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.gguf.entries import Entry
from emel.gguf.errors import MetadataError, quoted
from emel.gguf.values import ValueType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf.values import Value

# Those of llama.cpp's --override-kv.
MAX_KEY_BYTES = 127
MAX_TEXT_BYTES = 127
_FORM = "KEY=TYPE:VALUE with the types int, float, bool, str"
_INT64 = range(-(2**63), 2**63)
# What decides where the bytes of the file lie cannot be changed from outside.
_FIXED = ("general.alignment", "split.")
_NUMBERS = frozenset(ValueType) - {ValueType.BOOL, ValueType.STRING, ValueType.ARRAY}
_FLOATS = frozenset({ValueType.FLOAT32, ValueType.FLOAT64})

Scalar = int | float | bool | str


def parse_override(text: str) -> tuple[str, Scalar]:
    """One override as the command line has it, `KEY=TYPE:VALUE`; MetadataError says what is wrong with it."""
    key, equals, typed = text.partition("=")
    kind, colon, value = typed.partition(":")
    if not (key and equals and colon):
        raise MetadataError(f"{quoted(text)} is no override: {_FORM}")
    if kind == "str":
        return key, value
    if kind == "bool":
        if value not in ("true", "false"):
            raise MetadataError(f"override of {quoted(key)}: a bool is true or false, not {quoted(value)}")
        return key, value == "true"
    if kind not in ("int", "float"):
        raise MetadataError(f"override of {quoted(key)} has type {quoted(kind)}: {_FORM}")
    try:
        return key, int(value) if kind == "int" else float(value)
    except ValueError:
        raise MetadataError(f"override of {quoted(key)}: {quoted(value)} is no {kind}") from None


def with_overrides(entries: Mapping[str, Entry], overrides: Mapping[str, Scalar]) -> dict[str, Entry]:
    """The entries with others in place of, or besides, the file's.

    MetadataError for a key or text that is too long, a value of another kind than the file's, or a key that decides how
    the file is read.
    """
    return {**entries, **{key: _entry(key, value, entries.get(key)) for key, value in overrides.items()}}


def _entry(key: str, value: Scalar, before: Entry | None) -> Entry:
    n_bytes = len(key.encode("utf-8", "surrogateescape"))
    if not 1 <= n_bytes <= MAX_KEY_BYTES:
        raise MetadataError(f"override key {quoted(key)} has {n_bytes} bytes: 1 to {MAX_KEY_BYTES} are allowed")
    if key.startswith(_FIXED):
        raise MetadataError(f"{key!r} says how the file is read: it cannot be overridden")
    entry = Entry(_type_of(key, value), None, value)
    if before is not None and not _is_kind_of(entry.type, before.type):
        raise MetadataError(f"override of {quoted(key)} is {entry.type_name}, the file has {before.type_name}")
    return entry


def _type_of(key: str, value: Value) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, int):
        if value not in _INT64:
            raise MetadataError(f"override of {quoted(key)} is {value}: integers of 64 bits are allowed")
        return ValueType.INT64
    if isinstance(value, float):
        return ValueType.FLOAT64
    if isinstance(value, str):
        n_bytes = len(value.encode("utf-8", "surrogateescape"))
        if n_bytes > MAX_TEXT_BYTES:
            raise MetadataError(f"override of {quoted(key)} has {n_bytes} bytes: at most {MAX_TEXT_BYTES} are allowed")
        return ValueType.STRING
    raise MetadataError(f"override of {quoted(key)} is a {type(value).__name__}: int, float, bool and str are allowed")


def _is_kind_of(given: ValueType, found: ValueType) -> bool:
    """An integer may stand for a float, nothing else for another kind."""
    if given is ValueType.INT64:
        return found in _NUMBERS
    if given is ValueType.FLOAT64:
        return found in _FLOATS
    return given is found
