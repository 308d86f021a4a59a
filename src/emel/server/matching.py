"""llguidance over EMEL's vocabularies: which tokens may come next (https://github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import weakref
from array import array
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from emel.server.errors import ConstraintFailed

if TYPE_CHECKING:
    import threading

    from emel.engine.model import Model

_tokenizers: weakref.WeakKeyDictionary[Model, LLTokenizer] = weakref.WeakKeyDictionary()


class _Vocabulary:
    """A model's tokens in the form llguidance asks for."""

    def __init__(self, model: Model) -> None:
        tokenizer = model.tokenizer
        n = tokenizer.n_vocab
        ends = tokenizer.end_ids
        self.eos_token_id = tokenizer.eos_id if tokenizer.eos_id is not None else min(ends, default=0)
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = [each for each in range(n) if tokenizer.is_control(each)]
        self.tokens = [tokenizer.token_bytes(each) for each in range(n)]
        self._encode = tokenizer.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text, add_special=False, parse_special=False)


def tokenizer_for(model: Model, lock: threading.Lock) -> LLTokenizer:
    """The model's vocabulary for llguidance, made once: it takes some tenths of a second."""
    with lock:
        found = _tokenizers.get(model)
        if found is None:
            vocabulary = _Vocabulary(model)
            ends = sorted(model.tokenizer.end_ids) or [vocabulary.eos_token_id]
            found = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=model.n_vocab, eos_token=ends)
            _tokenizers[model] = found
        return found


class GrammarConstraint:
    """The state of one answer's constraint (emel.text.constraint.Constraint)."""

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._words = array("I", bytes(4 * ((n_vocab + 31) // 32)))
        self._address, n = self._words.buffer_info()
        self._n_bytes = 4 * n
        self._is_fresh = False

    @property
    def is_over(self) -> bool:
        """Whether nothing but an end token may follow."""
        return self._matcher.is_stopped()

    def mask(self) -> int:
        """The address of a bit for each token."""
        if not self._is_fresh:
            self._matcher.unsafe_compute_mask_ptr(self._address, self._n_bytes)
            self._check()
            self._is_fresh = True
        return self._address

    def accept(self, token: int) -> None:
        """Takes the token."""
        self._is_fresh = False
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintFailed(f"the constraint cannot go on: {' '.join(self._matcher.get_error().split()):.500}")
