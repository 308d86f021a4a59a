"""Typed access to a file's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, overload

from emel.gguf.errors import MetadataError
from emel.gguf.values import NumberArray, Value, ValueType

if TYPE_CHECKING:
    from emel.gguf.arrays import StringArray
    from emel.gguf.entries import Entry

D = TypeVar("D")


class _Required:
    """Stands for "no default": the key must be there."""


_REQUIRED = _Required()
_FLOATS = frozenset({ValueType.FLOAT32, ValueType.FLOAT64})
_BOOLS = frozenset({ValueType.BOOL})
_STRINGS = frozenset({ValueType.STRING})
_ARRAYS = frozenset({ValueType.ARRAY})
_INTS = frozenset(ValueType) - _FLOATS - _BOOLS - _STRINGS - _ARRAYS


class Metadata(Mapping[str, Value]):
    """Keys in file order. As a mapping it gives values of whatever type; the getters check the type.

    Every getter takes a default for a missing key; without one, and for another type, it raises MetadataError.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def __getitem__(self, key: str) -> Value:
        return self._entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def type_name(self, key: str) -> str:
        """The type of a value in words: `UINT32`, `array of STRING`; KeyError when the key is missing."""
        return self._entries[key].type_name

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: D) -> str | D: ...
    def get_str(self, key: str, default: object = _REQUIRED) -> object:
        """A string."""
        return self._scalar(key, default, _STRINGS, "a string")

    @overload
    def get_int(self, key: str) -> int: ...
    @overload
    def get_int(self, key: str, default: D) -> int | D: ...
    def get_int(self, key: str, default: object = _REQUIRED) -> object:
        """An integer of any width."""
        return self._scalar(key, default, _INTS, "an integer")

    @overload
    def get_float(self, key: str) -> float: ...
    @overload
    def get_float(self, key: str, default: D) -> float | D: ...
    def get_float(self, key: str, default: object = _REQUIRED) -> object:
        """A float of any width (of an integer, its value)."""
        value = self._scalar(key, default, _FLOATS | _INTS, "a float")
        return value if key not in self._entries else float(value)  # type: ignore[arg-type]

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: D) -> bool | D: ...
    def get_bool(self, key: str, default: object = _REQUIRED) -> object:
        """A boolean."""
        return self._scalar(key, default, _BOOLS, "a boolean")

    @overload
    def get_array(self, key: str) -> StringArray | NumberArray: ...
    @overload
    def get_array(self, key: str, default: D) -> StringArray | NumberArray | D: ...
    def get_array(self, key: str, default: object = _REQUIRED) -> object:
        """An array of any element type: StringArray, or a memoryview of numbers or booleans."""
        return self._scalar(key, default, _ARRAYS, "an array")

    @overload
    def get_strings(self, key: str) -> StringArray: ...
    @overload
    def get_strings(self, key: str, default: D) -> StringArray | D: ...
    def get_strings(self, key: str, default: object = _REQUIRED) -> object:
        """An array of strings."""
        return self._array(key, default, _STRINGS, "an array of strings")

    @overload
    def get_ints(self, key: str) -> memoryview: ...
    @overload
    def get_ints(self, key: str, default: D) -> memoryview | D: ...
    def get_ints(self, key: str, default: object = _REQUIRED) -> object:
        """An array of integers of any width, as a typed memoryview."""
        return self._array(key, default, _INTS, "an array of integers")

    @overload
    def get_floats(self, key: str) -> memoryview[float]: ...
    @overload
    def get_floats(self, key: str, default: D) -> memoryview[float] | D: ...
    def get_floats(self, key: str, default: object = _REQUIRED) -> object:
        """An array of floats of any width, as a typed memoryview."""
        return self._array(key, default, _FLOATS, "an array of floats")

    def _scalar(self, key: str, default: object, allowed: frozenset[ValueType], wanted: str) -> object:
        entry = self._entries.get(key)
        if entry is None:
            return _default_of(key, default, wanted)
        if entry.type not in allowed:
            raise MetadataError(f"metadata {key!r} has type {entry.type_name}: {wanted} is wanted")
        return entry.value

    def _array(self, key: str, default: object, allowed: frozenset[ValueType], wanted: str) -> object:
        entry = self._entries.get(key)
        if entry is None:
            return _default_of(key, default, wanted)
        if entry.element not in allowed:
            raise MetadataError(f"metadata {key!r} has type {entry.type_name}: {wanted} is wanted")
        return entry.value


def _default_of(key: str, default: object, wanted: str) -> object:
    if isinstance(default, _Required):
        raise MetadataError(f"metadata {key!r} is missing: {wanted} is needed")
    return default
