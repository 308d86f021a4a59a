"""Tokens by what a text begins with: the native trie over some of a vocabulary, and its lifetime."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

from emel._native import NativeError, check
from emel._native import trie as native

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from emel.text.vocabulary import Vocabulary

_N_MATCHES = 64  # asked for at a time


class TokenTrie:
    """The tokens of some GGUF types. Immutable and safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary, types: tuple[int, ...]) -> None:
        self._vocabulary = vocabulary  # the handle points into it
        self.handle = ctypes.c_void_p()
        try:
            check(native.trie_create(vocabulary.handle, sum(1 << each for each in types), ctypes.byref(self.handle)))
        except NativeError as error:
            raise ValueError(f"the vocabulary cannot be used: {error}") from error
        weakref.finalize(self, native.trie_destroy, self.handle).atexit = False  # as in vocabulary.py

    def find(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        """(begin, end, id) of the tokens in data: the leftmost first, the longest at each place, none overlapping."""
        matches = (native.Match * _N_MATCHES)()
        position, n_matches = ctypes.c_uint64(), ctypes.c_uint64()
        while position.value < len(data):
            check(
                native.trie_find(
                    self.handle,
                    data,
                    len(data),
                    ctypes.byref(position),
                    matches,
                    _N_MATCHES,
                    ctypes.byref(n_matches),
                )
            )
            for index in range(n_matches.value):
                match = matches[index]
                yield match.begin, match.end, match.id

    def encode(self, data: bytes, unknown: int | None) -> list[int]:
        """The longest token at each place; unknown (None: nothing) for each byte where none begins."""
        ids = (ctypes.c_int32 * len(data))()
        n_ids = ctypes.c_uint64()
        check(native.trie_encode(self.handle, data, len(data), _id(unknown), ids, len(data), ctypes.byref(n_ids)))
        return ids[: n_ids.value]

    def encode_words(self, data: bytes, ends: array[int], unknown: int | None) -> list[int]:
        """The same inside each word ("Q" array of their ascending ends); one unknown for a word that is not covered."""
        ids = (ctypes.c_int32 * len(data))()
        n_ids = ctypes.c_uint64()
        address, n_words = ends.buffer_info()
        check(
            native.trie_encode_words(
                self.handle,
                data,
                len(data),
                address,
                n_words,
                _id(unknown),
                ids,
                len(data),
                ctypes.byref(n_ids),
            )
        )
        return ids[: n_ids.value]


def _id(unknown: int | None) -> int:
    return -1 if unknown is None else unknown
