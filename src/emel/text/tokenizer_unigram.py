"""Unigram (T5, XLM-RoBERTa): the most probable way to put a text together from tokens.

Text is normalised first as SentencePiece does it, by the file's map of characters and its rules for spaces, so it does
not come back as it was; bytes that are not UTF-8 are read as U+FFFD.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

from emel._native import NativeError, check
from emel._native import unigram as native
from emel._native import vocab as types
from emel._native.addresses import held_address
from emel.text.token_trie import TokenTrie
from emel.text.vocabulary import Vocabulary, as_items

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECES = (types.TOKEN_NORMAL, types.TOKEN_USER_DEFINED, types.TOKEN_UNUSED)


class UnigramEncoder:
    """Immutable and safe to use from many threads.

    scores: (n_tokens,) natural logarithms of probabilities. charsmap: SentencePiece's precompiled_charsmap, or nothing.
    Characters without a token become one byte token for each of their bytes, or, where there are none, the unknown
    token, one for all in a row. Raises ValueError when scores or map do not fit.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        scores: memoryview | Sequence[float],
        charsmap: bytes = b"",
        *,
        add_space: bool = True,
        remove_extra_spaces: bool = True,
        unknown: int | None = None,
    ) -> None:
        if len(scores) != vocabulary.n_tokens:
            raise ValueError(f"{len(scores)} token scores for {vocabulary.n_tokens} tokens: one each is needed")
        self._pieces = TokenTrie(vocabulary, _PIECES)  # the handle below points into it
        handle = ctypes.c_void_p()
        with held_address(as_items("f", scores)) as address:
            description = native.UnigramDesc(
                trie=self._pieces.handle,
                scores=address,
                charsmap=charsmap,
                charsmap_bytes=len(charsmap),
                unknown=-1 if unknown is None else unknown,
                flags=native.ADD_SPACE * add_space | native.REMOVE_EXTRA_SPACES * remove_extra_spaces,
            )
            try:
                check(native.unigram_create(ctypes.byref(description), ctypes.byref(handle)))
            except NativeError as error:
                raise ValueError(f"the vocabulary cannot be used: {error}") from error
        self._handle = handle
        weakref.finalize(self, native.unigram_destroy, handle).atexit = False  # as in vocabulary.py

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; each is normalised by itself, is_first or not."""
        del is_first
        data = text.encode("utf-8", "surrogateescape")
        capacity = len(data) + 3  # nearly always enough; the call says what is where it is not
        n_ids = ctypes.c_uint64()
        while True:
            ids = (ctypes.c_int32 * capacity)()
            check(native.unigram_encode(self._handle, data, len(data), ids, capacity, ctypes.byref(n_ids)))
            if n_ids.value <= capacity:
                return ids[: n_ids.value]
            capacity = n_ids.value
