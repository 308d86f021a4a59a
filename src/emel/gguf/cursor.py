"""A position in the bytes of a file: every step is checked against what remains before anything is taken."""

from __future__ import annotations

import struct
from typing import Any

from emel.gguf.errors import GgufError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Takes values from `data` in order. `what` names, for errors, the thing the bytes belong to."""

    __slots__ = ("data", "n_bytes", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self.data = data
        self.n_bytes = len(data)
        self.position = position

    @property
    def remaining(self) -> int:
        """Bytes not taken yet."""
        return self.n_bytes - self.position

    def take_u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        self.require(4, what)
        value: int = _U32.unpack_from(self.data, self.position)[0]
        self.position += 4
        return value

    def take_u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        self.require(8, what)
        value: int = _U64.unpack_from(self.data, self.position)[0]
        self.position += 8
        return value

    def take_fields(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """The numbers of the given layout."""
        self.require(layout.size, what)
        fields = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return fields

    def take_view(self, n_bytes: int, what: str) -> memoryview:
        """The next n_bytes, not copied."""
        self.require(n_bytes, what)
        view = self.data[self.position : self.position + n_bytes]
        self.position += n_bytes
        return view

    def take_text(self, n_bytes: int, what: str) -> str:
        """The next n_bytes as UTF-8."""
        view = self.take_view(n_bytes, what)
        try:
            return str(view, "utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(
                f"{what} is not valid UTF-8 (byte {view[error.start]:#04x} at position {error.start})"
            ) from None

    def require(self, n_bytes: int, what: str) -> None:
        """Raises GgufError unless n_bytes remain."""
        if n_bytes > self.n_bytes - self.position:
            raise GgufError(
                f"{what} needs {n_bytes} bytes at byte {self.position}, but only {self.remaining} remain: "
                "the file is truncated or damaged, fetch it again"
            )
