"""llguidance over EMEL's vocabularies: which tokens may come next (https://github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import os
import threading
import weakref
from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from emel.engine.grammar_check import CHECKER, limits
from emel.text.constraint import ConstraintFailed

if TYPE_CHECKING:
    from emel.text.tokenizer import Tokenizer

_MAX_KEPT = 32
"""Compiled grammars of a model that are kept, those asked for last."""


class _Compiled:
    """A model's vocabulary for llguidance, and grammars compiled for it."""

    def __init__(self, tokenizer: Tokenizer, n_vocab: int) -> None:
        vocabulary = _Vocabulary(tokenizer)
        ends = sorted(tokenizer.end_ids) or [vocabulary.eos_token_id]
        self.tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=n_vocab, eos_token=ends)
        self.matchers: OrderedDict[str, LLMatcher] = OrderedDict()


_compiled: weakref.WeakKeyDictionary[Tokenizer, _Compiled] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _forget_holder() -> None:
    """In a process that forked while another thread held the lock: that thread did not come along."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_holder)


class _Vocabulary:
    """A model's tokens in the form llguidance asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        n = tokenizer.n_vocab
        ends = tokenizer.end_ids
        self.eos_token_id = tokenizer.eos_id if tokenizer.eos_id is not None else min(ends, default=0)
        self.bos_token_id = tokenizer.bos_id
        self.special_token_ids = [each for each in range(n) if tokenizer.is_control(each)]
        self.tokens = [tokenizer.token_bytes(each) for each in range(n)]
        self._tokenizer = weakref.ref(tokenizer)  # llguidance keeps this object: neither would ever go

    def __call__(self, text: bytes | str) -> list[int]:
        tokenizer = self._tokenizer()
        assert tokenizer is not None  # whoever generates has it
        return tokenizer.encode(text, add_special=False, parse_special=False)


def compiled_for(tokenizer: Tokenizer, n_vocab: int, grammar: str) -> LLMatcher:
    """The grammar over a model's vocabulary, in its first state: to be copied. ValueError for one that cannot be had.

    A model's first takes some tenths of a second more. For any thread. CheckerBusyError.
    """
    with _lock:
        found = _compiled.get(tokenizer)
        if found is None:
            found = _compiled[tokenizer] = _Compiled(tokenizer, n_vocab)
        matcher = found.matchers.get(grammar)
        if matcher is not None:
            found.matchers.move_to_end(grammar)
            return matcher
    if reason := CHECKER.check(grammar):
        raise ValueError(reason)
    matcher = LLMatcher(found.tokenizer, grammar, log_level=0, limits=limits())
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    if not _has_answer(matcher, n_vocab):
        raise ValueError("nothing obeys it")
    with _lock:
        found.matchers[grammar] = matcher
        if len(found.matchers) > _MAX_KEPT:
            found.matchers.popitem(last=False)
    return matcher


def _has_answer(matcher: LLMatcher, n_vocab: int) -> bool:
    first = GrammarConstraint(matcher.deep_copy(), n_vocab)
    try:
        first.mask()
    except ConstraintFailed:
        return False
    return first.has_choice


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

    @property
    def has_choice(self) -> bool:
        """Whether the last mask allows a token."""
        return any(self._words)

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
            reason = self._matcher.get_error().partition("<state>")[0]  # what follows is for llguidance's authors
            raise ConstraintFailed(f"the constraint cannot go on: {' '.join(reason.split()):.500}")
