"""SentencePiece's BPE (Llama 1 and 2, Gemma, Mistral): spaces are marks, and scores say what is merged first.

Characters without a token become one byte token for each of their bytes, or the unknown token where there are none.
A space is put in front of a text, and of what follows a special token, unless the file says not to: words look the
same at the beginning as inside (tokenizer.ggml.add_space_prefix).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

from emel._native import check
from emel._native import spm as native
from emel._native.addresses import held_address
from emel.text.vocabulary import Vocabulary, as_items

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPACE_MARK = "\u2581"


class SpmEncoder:
    """Immutable and safe to use from many threads.

    scores: (n_tokens,), higher is merged earlier. Raises ValueError when they do not fit the vocabulary.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        scores: memoryview | Sequence[float],
        *,
        add_space: bool = True,
        unknown: int | None = None,
    ) -> None:
        if len(scores) != vocabulary.n_tokens:
            raise ValueError(f"{len(scores)} token scores for {vocabulary.n_tokens} tokens: one each is needed")
        self._vocabulary = vocabulary  # the handle below points into it
        self._prefix = _SPACE_MARK if add_space else ""
        handle = ctypes.c_void_p()
        with held_address(as_items("f", scores)) as address:
            check(
                native.spm_create(vocabulary.handle, address, -1 if unknown is None else unknown, ctypes.byref(handle))
            )
        self._handle = handle
        weakref.finalize(self, native.spm_destroy, handle).atexit = False  # as in vocabulary.py

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; is_first: it begins the whole, or follows a special token."""
        marked = (self._prefix if is_first else "") + text.replace(" ", _SPACE_MARK)
        data = marked.encode("utf-8", "surrogateescape")
        ids = (ctypes.c_int32 * len(data))()
        n_ids = ctypes.c_uint64()
        check(native.spm_encode(self._handle, data, len(data), ids, len(data), ctypes.byref(n_ids)))
        return ids[: n_ids.value]
