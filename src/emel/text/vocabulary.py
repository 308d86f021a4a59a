"""The tokens of a vocabulary: the native table and its lifetime."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from typing import TYPE_CHECKING

from emel._native import NativeError, check
from emel._native import vocab as native
from emel._native.addresses import held_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.gguf.arrays import StringArray

# Ids travel as 32-bit integers; anything wider is outside every vocabulary.
_MAX_ID = 2**31 - 1


class Vocabulary:
    """Tokens and their types. Safe to use from many threads; native calls hold no lock.

    tokens: GGUF string array, read natively (no Python object per token).
    types: (n_tokens,) GGUF token types, or None when all are normal.
    spelling: how the texts spell the bytes they stand for, one of SPELLING_* of emel._native.vocab.
    Raises ValueError when the arrays do not fit together.
    """

    def __init__(
        self,
        tokens: StringArray,
        types: memoryview | Sequence[int] | None,
        *,
        spelling: int = native.SPELLING_BYTE_LEVEL,
    ) -> None:
        self.n_tokens = tokens.count
        self.spelling = spelling
        if types is not None and len(types) != tokens.count:
            raise ValueError(f"{len(types)} token types for {tokens.count} tokens: one each is needed")
        handle = ctypes.c_void_p()
        with (
            held_address(tokens.raw) as address,
            held_address(as_items("i", types if types is not None else ())) as types_address,
        ):
            description = native.VocabDesc(
                tokens=address,
                tokens_bytes=tokens.raw.nbytes,
                n_tokens=tokens.count,
                types=types_address if types is not None else None,
                spelling=spelling,
            )
            try:
                check(native.vocab_create(ctypes.byref(description), ctypes.byref(handle)))
            except NativeError as error:
                raise ValueError(f"the vocabulary cannot be used: {error}") from error
        self.handle = handle
        # Not at exit: a thread may still be encoding, and the process gives the memory back anyway.
        weakref.finalize(self, native.vocab_destroy, handle).atexit = False

    def mark_control(self, ids: Sequence[int]) -> None:
        """Makes control tokens of the ids: for files that do not say so. Before any encoder is made."""
        packed = array("i", ids)
        check(native.vocab_mark_control(self.handle, packed.buffer_info()[0], len(packed)))

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of the ids, one after the other; IndexError for an id outside the vocabulary."""
        try:
            packed = array("i", ids)
        except OverflowError:
            bad = next(each for each in ids if not 0 <= each <= _MAX_ID)
            raise IndexError(self._outside(bad)) from None
        address, n_ids = packed.buffer_info()
        n_bytes = ctypes.c_uint64()
        try:
            check(native.vocab_decode(self.handle, address, n_ids, None, 0, ctypes.byref(n_bytes)))
        except NativeError as error:
            raise IndexError(str(error)) from None
        out = ctypes.create_string_buffer(max(n_bytes.value, 1))
        check(native.vocab_decode(self.handle, address, n_ids, out, n_bytes.value, ctypes.byref(n_bytes)))
        return out.raw[: n_bytes.value]

    def find(self, text: str) -> int | None:
        """The id of the token whose text in the file is exactly this, or None."""
        encoded = text.encode("utf-8", "surrogateescape")
        found = native.vocab_find(self.handle, encoded, len(encoded))
        return found if found >= 0 else None

    def ids_of_types(self, *types: int) -> list[int]:
        """Ids of the tokens of these types, ascending."""
        mask = sum(1 << each for each in types)
        n_ids = ctypes.c_uint64()
        check(native.vocab_ids_of_types(self.handle, mask, None, 0, ctypes.byref(n_ids)))
        ids = (ctypes.c_int32 * n_ids.value)()
        check(native.vocab_ids_of_types(self.handle, mask, ids, n_ids.value, ctypes.byref(n_ids)))
        return ids[:]

    def _outside(self, token_id: int) -> str:
        return f"token id {token_id} is outside the vocabulary: allowed are 0 to {self.n_tokens - 1}"


def as_items(kind: str, values: memoryview | Sequence[float]) -> memoryview | array[float]:
    """Numbers as a buffer of one of array's kinds: themselves if they are one already, else a copy."""
    if isinstance(values, memoryview) and values.format == kind:
        return values
    return array(kind, values)
