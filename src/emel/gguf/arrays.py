"""Arrays of strings as they lie in the file; Python objects are made only for what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from emel.gguf.errors import GgufError
from emel.io.strings import string_offsets

if TYPE_CHECKING:
    import array
    from collections.abc import Iterator

_LENGTH_BYTES = 8


class StringArray:
    """`count` strings in `raw`, each a little-endian uint64 length and its bytes (zero copy, checked by the parser).

    `offsets` (count + 1,) is made natively on first use. Text is decoded as UTF-8 on access; `bytes_at` never decodes.
    """

    __slots__ = ("_offsets", "count", "raw")

    def __init__(self, count: int, raw: memoryview) -> None:
        self.count = count
        self.raw = raw
        self._offsets: array.array[int] | None = None

    @property
    def offsets(self) -> array.array[int]:
        """Where in `raw` each string starts (its length field), then where the last one ends: uint64 (count + 1,)."""
        if self._offsets is None:
            self._offsets = string_offsets(self.raw, self.count)
        return self._offsets

    def bytes_at(self, index: int) -> bytes:
        """The bytes of one string; IndexError outside [-count, count)."""
        position = index + self.count if index < 0 else index
        if not 0 <= position < self.count:
            raise IndexError(f"string {index} of {self.count}")
        offsets = self.offsets
        return bytes(self.raw[offsets[position] + _LENGTH_BYTES : offsets[position + 1]])

    def iter_bytes(self) -> Iterator[bytes]:
        """The bytes of every string in order."""
        return map(self.bytes_at, range(self.count))

    def detached(self) -> StringArray:
        """The same strings in memory of their own."""
        return StringArray(self.count, memoryview(bytes(self.raw)))

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self.count))]
        try:
            return self.bytes_at(index).decode("utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(f"string {index} of {self.count} is not valid UTF-8: {error.object!r}") from None

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(self.count))

    def __repr__(self) -> str:
        return f"StringArray(count={self.count}, n_bytes={self.raw.nbytes})"
