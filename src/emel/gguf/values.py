"""Metadata values: the twelve scalar types and arrays of them.

Limits beyond the format's own keep a lying file cheap: text of 16 MiB, arrays of 2^24 elements (a vocabulary of 262,144
tokens uses 1.6 % of that).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from emel.gguf.arrays import StringArray
from emel.gguf.errors import GgufError, quoted
from emel.io.strings import scan_strings

if TYPE_CHECKING:
    from emel.gguf.cursor import Cursor

MAX_TEXT_BYTES = 1 << 24
MAX_ARRAY_ELEMENTS = 1 << 24

NumberArray: TypeAlias = "memoryview[int] | memoryview[float] | memoryview[bool]"
Value: TypeAlias = "int | float | bool | str | StringArray | NumberArray"


class ValueType(IntEnum):
    """GGUF's own ids of metadata types."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


Letter: TypeAlias = Literal["B", "b", "H", "h", "I", "i", "f", "?", "Q", "q", "d"]

# struct and memoryview.cast letters
_LETTERS: dict[ValueType, Letter] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
_LAYOUTS = {each: struct.Struct("<" + letter) for each, letter in _LETTERS.items() if each is not ValueType.BOOL}
_BOOL_CHUNK = 1 << 16


def letter_of(element: ValueType | None) -> Letter:
    """The memoryview format of an array of numbers or booleans."""
    assert element is not None
    return _LETTERS[element]


def read_value(cursor: Cursor, key: str) -> tuple[ValueType, ValueType | None, Value]:
    """Takes a type id and its value: (type, element type of an array or None, value)."""
    what = f"metadata {quoted(key)}"
    value_type = _take_type(cursor, what, "type")
    if value_type is ValueType.ARRAY:
        element, array = _take_array(cursor, what)
        return value_type, element, array
    if value_type is ValueType.STRING:
        return value_type, None, _take_string(cursor, what)
    if value_type is ValueType.BOOL:
        return value_type, None, _take_bool(cursor, what)
    return value_type, None, cursor.take_fields(_LAYOUTS[value_type], f"{what} ({value_type.name})")[0]


def _take_type(cursor: Cursor, what: str, role: str) -> ValueType:
    type_id = cursor.take_u32(f"the {role} of {what}")
    try:
        return ValueType(type_id)
    except ValueError:
        raise GgufError(
            f"{what} has unknown {role} {type_id}: allowed are 0 to {max(ValueType)}, the file is damaged or newer"
        ) from None


def _take_string(cursor: Cursor, what: str) -> str:
    length = cursor.take_u64(f"the length of {what}")
    if length > MAX_TEXT_BYTES:
        raise GgufError(f"{what} claims a text of {length} bytes: allowed are at most {MAX_TEXT_BYTES}")
    return cursor.take_text(length, what)


def _take_bool(cursor: Cursor, what: str) -> bool:
    byte = cursor.take_view(1, what)[0]
    if byte > 1:
        raise GgufError(f"{what} is a boolean with value {byte}: allowed are 0 and 1")
    return byte == 1


def _take_array(cursor: Cursor, what: str) -> tuple[ValueType, StringArray | NumberArray]:
    element = _take_type(cursor, what, "element type")
    if element is ValueType.ARRAY:
        raise GgufError(f"{what} is an array of arrays: allowed are arrays of numbers, booleans and strings")
    count = cursor.take_u64(f"the length of {what}")
    element_bytes = 8 if element is ValueType.STRING else struct.calcsize("<" + _LETTERS[element])
    if count > cursor.remaining // element_bytes:
        raise GgufError(
            f"{what} claims {count} elements of at least {element_bytes} bytes, but {cursor.remaining} bytes remain: "
            "the file is truncated or damaged"
        )
    if count > MAX_ARRAY_ELEMENTS:
        raise GgufError(f"{what} claims {count} elements: allowed are at most {MAX_ARRAY_ELEMENTS}")
    if element is ValueType.STRING:
        return element, _take_string_array(cursor, count, what)
    view = cursor.take_view(count * element_bytes, what)
    if element is ValueType.BOOL:
        _check_bools(view, what)
    return element, view.cast(_LETTERS[element])


def _take_string_array(cursor: Cursor, count: int, what: str) -> StringArray:
    scan = scan_strings(cursor.data[cursor.position :], count)
    if scan.n_scanned != count:
        raise GgufError(
            f"{what}: string {scan.n_scanned} of {count} at byte {cursor.position + scan.n_bytes} "
            f"ends past the {cursor.remaining} bytes that remain: the file is truncated or damaged"
        )
    return StringArray(count, cursor.take_view(scan.n_bytes, what))


def _check_bools(view: memoryview, what: str) -> None:
    for start in range(0, len(view), _BOOL_CHUNK):
        wrong = bytes(view[start : start + _BOOL_CHUNK]).translate(None, b"\x00\x01")
        if wrong:
            raise GgufError(f"{what} is an array of booleans with a value {wrong[0]}: allowed are 0 and 1")
