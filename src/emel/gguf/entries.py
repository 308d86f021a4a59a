"""The metadata entries of a file: keys with typed values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.gguf.arrays import StringArray
from emel.gguf.errors import GgufError, quoted
from emel.gguf.values import Value, ValueType, letter_of, read_value
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.gguf.cursor import Cursor

MAX_KEY_BYTES = 65535


@dataclass(frozen=True, slots=True)
class Entry:
    """One value and its type; `element` is the type of an array's elements, None for a scalar."""

    type: ValueType
    element: ValueType | None
    value: Value

    def detached(self) -> Entry:
        """The same entry, an array in memory of its own."""
        if isinstance(self.value, StringArray):
            return replace(self, value=self.value.detached())
        if isinstance(self.value, memoryview):
            copy = memoryview(self.value.tobytes())
            return replace(self, value=copy.cast(letter_of(self.element)))
        return self

    @property
    def type_name(self) -> str:
        """The type in words: `UINT32`, `array of STRING`."""
        return self.type.name if self.element is None else f"array of {self.element.name}"


def read_entries(cursor: Cursor, n_entries: int) -> dict[str, Entry]:
    """Takes n_entries entries in file order; GgufError names the first that is wrong."""
    entries: dict[str, Entry] = {}
    for index in range(n_entries):
        key = _take_key(cursor, index, n_entries)
        if key in entries:
            raise GgufError(f"metadata key {quoted(key)} occurs twice: keys must be unique")
        entries[key] = Entry(*read_value(cursor, key))
    return entries


def _take_key(cursor: Cursor, index: int, n_entries: int) -> str:
    what = f"the key of metadata entry {index + 1} of {n_entries}"
    n_bytes = cursor.take_u64(what)
    if not 1 <= n_bytes <= MAX_KEY_BYTES:
        raise GgufError(f"{what} has {n_bytes} bytes: allowed are 1 to {MAX_KEY_BYTES}, the file is damaged")
    return cursor.take_text(n_bytes, what)
