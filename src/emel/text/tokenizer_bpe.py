"""BPE: text is cut into words by a pre-tokenizer, then merged within them in the order of the file's merges."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

from emel._native import NativeError, check
from emel._native import bpe as native
from emel._native.addresses import held_address
from emel._native.vocab import SPELLING_SPACE_MARK
from emel.text.pretokenizers import word_ends

if TYPE_CHECKING:
    from array import array

    from emel.gguf.arrays import StringArray
    from emel.text.pretokenizers import PreTokenizer
    from emel.text.vocabulary import Vocabulary


class BpeEncoder:
    """Immutable and safe to use from many threads.

    merges: "left right" in order of rank, or None.
    unknown: the token of each byte that has none; with None those are left out, as by the tokenizers such vocabularies
    were trained with: those bytes alone do not come back.
    Raises ValueError when the merges do not fit the vocabulary.
    """

    def __init__(
        self, vocabulary: Vocabulary, merges: StringArray | None, pre: PreTokenizer, unknown: int | None = None
    ) -> None:
        self._vocabulary = vocabulary  # the handle below points into it
        self._pre = pre
        self._marks_spaces = vocabulary.spelling == SPELLING_SPACE_MARK
        handle = ctypes.c_void_p()
        with held_address(merges.raw if merges is not None else b"") as address:
            description = native.BpeDesc(
                vocab=vocabulary.handle,
                merges=address,
                merges_bytes=merges.raw.nbytes if merges is not None else 0,
                n_merges=merges.count if merges is not None else 0,
                ignore_merges=pre.ignore_merges,
                unknown=-1 if unknown is None else unknown,
            )
            try:
                check(native.bpe_create(ctypes.byref(description), ctypes.byref(handle)))
            except NativeError as error:
                raise ValueError(f"the vocabulary cannot be used: {error}") from error
        self._handle = handle
        weakref.finalize(self, native.bpe_destroy, handle).atexit = False  # as in vocabulary.py

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; is_first makes no difference to BPE."""
        del is_first
        if self._marks_spaces:
            text = text.replace(" ", "\u2581")
        return self.encode_words(text.encode("utf-8", "surrogateescape"), word_ends(self._pre.split(text)))

    def encode_words(self, data: bytes, ends: array[int]) -> list[int]:
        """Ids of words given by the ascending byte offsets of their ends ("Q" array), the last being len(data)."""
        ids = (ctypes.c_int32 * len(data))()
        n_ids = ctypes.c_uint64()
        address, n_words = ends.buffer_info()
        check(native.bpe_encode(self._handle, data, len(data), address, n_words, ids, len(data), ctypes.byref(n_ids)))
        return ids[: n_ids.value]
