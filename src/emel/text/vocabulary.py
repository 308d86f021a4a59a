"""A byte-level BPE vocabulary: the native tables and their lifetime."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from typing import TYPE_CHECKING

from emel._native import NativeError, check
from emel._native import bpe as native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.gguf.arrays import StringArray

# Ids travel as 32-bit integers; anything wider is outside every vocabulary.
_MAX_ID = 2**31 - 1


class Vocabulary:
    """Tokens, their types and the merges. Immutable, safe to use from many threads; native calls hold no lock.

    tokens, merges: GGUF string arrays, read natively (no Python object per token).
    types: (n_tokens,) GGUF token types, or None when all are normal.
    ignore_merges: a word that is a token as a whole is that token, whatever the merges say.
    Raises ValueError when the arrays do not fit together.
    """

    def __init__(
        self,
        tokens: StringArray,
        types: memoryview | Sequence[int] | None,
        merges: StringArray | None,
        *,
        ignore_merges: bool = False,
    ) -> None:
        self.n_tokens = tokens.count
        if types is not None and len(types) != tokens.count:
            raise ValueError(f"{len(types)} token types for {tokens.count} tokens: one each is needed")
        raw_merges = merges.raw.tobytes() if merges is not None else b""
        description = native.BpeDesc(
            tokens=tokens.raw.tobytes(),
            tokens_bytes=tokens.raw.nbytes,
            n_tokens=tokens.count,
            types=_as_int32(types),
            merges=raw_merges,
            merges_bytes=len(raw_merges),
            n_merges=merges.count if merges is not None else 0,
            ignore_merges=ignore_merges,
        )
        handle = ctypes.c_void_p()
        try:
            check(native.bpe_create(ctypes.byref(description), ctypes.byref(handle)))
        except NativeError as error:
            raise ValueError(f"the vocabulary cannot be used: {error}") from error
        self._handle = handle
        # Not at exit: a thread may still be encoding, and the process gives the memory back anyway.
        weakref.finalize(self, native.bpe_destroy, handle).atexit = False

    def encode_words(self, text: bytes, word_ends: array[int]) -> list[int]:
        """Ids of words given by the ascending byte offsets of their ends ("Q" array), the last being len(text)."""
        ids = (ctypes.c_int32 * len(text))()
        n_ids = ctypes.c_uint64()
        address, n_words = word_ends.buffer_info()
        check(
            native.bpe_encode(self._handle, text, len(text), address, n_words, ids, len(text), ctypes.byref(n_ids)),
        )
        return ids[: n_ids.value]

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
            check(native.bpe_decode(self._handle, address, n_ids, None, 0, ctypes.byref(n_bytes)))
        except NativeError as error:
            raise IndexError(str(error)) from None
        out = ctypes.create_string_buffer(max(n_bytes.value, 1))
        check(native.bpe_decode(self._handle, address, n_ids, out, n_bytes.value, ctypes.byref(n_bytes)))
        return out.raw[: n_bytes.value]

    def find(self, text: str) -> int | None:
        """The id of the token whose text in the file is exactly this, or None."""
        encoded = text.encode("utf-8", "surrogateescape")
        found = native.bpe_find(self._handle, encoded, len(encoded))
        return found if found >= 0 else None

    def bytes_without_token(self) -> bytes:
        """The bytes that no token stands for on its own, ascending."""
        printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}  # these stand for themselves
        spare = iter(range(0x100, 0x200))
        characters = [chr(byte if byte in printable else next(spare)) for byte in range(256)]
        return bytes(byte for byte, character in enumerate(characters) if self.find(character) is None)

    def ids_of_types(self, *types: int) -> list[int]:
        """Ids of the tokens of these types, ascending."""
        mask = sum(1 << each for each in types)
        n_ids = ctypes.c_uint64()
        check(native.bpe_ids_of_types(self._handle, mask, None, 0, ctypes.byref(n_ids)))
        ids = (ctypes.c_int32 * n_ids.value)()
        check(native.bpe_ids_of_types(self._handle, mask, ids, n_ids.value, ctypes.byref(n_ids)))
        return ids[:]

    def _outside(self, token_id: int) -> str:
        return f"token id {token_id} is outside the vocabulary: allowed are 0 to {self.n_tokens - 1}"


def _as_int32(types: memoryview | Sequence[int] | None) -> bytes | None:
    if types is None:
        return None
    if isinstance(types, memoryview) and types.format == "i":
        return types.tobytes()
    # Other widths are legal GGUF; whatever is no token type is read as type 0, undefined.
    return array("i", [each if 0 <= each <= _MAX_ID else 0 for each in types]).tobytes()
