"""RWKV: the longest token at each place. Every byte has a token, so any text comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel._native import vocab as types
from emel.text.token_trie import TokenTrie

if TYPE_CHECKING:
    from emel.text.vocabulary import Vocabulary

_PIECES = (0, types.TOKEN_NORMAL, types.TOKEN_USER_DEFINED, types.TOKEN_UNUSED, types.TOKEN_BYTE)


class RwkvEncoder:
    """Immutable and safe to use from many threads. unknown: the token of each byte where none begins."""

    def __init__(self, vocabulary: Vocabulary, unknown: int | None = None) -> None:
        self._pieces = TokenTrie(vocabulary, _PIECES)
        self._unknown = unknown

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; is_first makes no difference to RWKV."""
        del is_first
        return self._pieces.encode(text.encode("utf-8", "surrogateescape"), self._unknown)
