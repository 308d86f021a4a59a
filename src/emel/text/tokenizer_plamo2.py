"""PLaMo-2: the cheapest way to put a text together from tokens, by scores rounded to ten-thousandths.

Characters without a token become one byte token for each of their bytes. A byte order mark that begins a text is
dropped (tokenization_plamo.py of https://huggingface.co/pfnet/plamo-2-1b).
"""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING

from emel._native import check
from emel._native import unigram as native
from emel._native import vocab as types
from emel.text.token_trie import TokenTrie

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.text.vocabulary import Vocabulary

_PIECES = (0, types.TOKEN_NORMAL, types.TOKEN_USER_DEFINED, types.TOKEN_UNUSED)
_BYTE_ORDER_MARK = "\ufeff"


class Plamo2Encoder:
    """Immutable and safe to use from many threads. scores: (n_tokens,); ValueError when they do not fit."""

    def __init__(self, vocabulary: Vocabulary, scores: memoryview | Sequence[float]) -> None:
        if len(scores) != vocabulary.n_tokens:
            raise ValueError(f"{len(scores)} token scores for {vocabulary.n_tokens} tokens: one each is needed")
        self._pieces = TokenTrie(vocabulary, _PIECES)
        self._scores = array("f", scores)

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; is_first makes no difference to PLaMo-2."""
        del is_first
        data = text.removeprefix(_BYTE_ORDER_MARK).encode("utf-8", "surrogateescape")
        ids = (ctypes.c_int32 * len(data))()
        n_ids = ctypes.c_uint64()
        scores, _ = self._scores.buffer_info()
        check(
            native.plamo2_encode(self._pieces.handle, scores, data, len(data), ids, len(data), ctypes.byref(n_ids)),
        )
        return ids[: n_ids.value]
