"""Guesses of a draft model: a smaller one with the same vocabulary, which takes its likeliest token again and again.

It has a memory of its own. What it computed of a guess that was wrong is rolled back when the next draft is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.batch import Outputs
from emel.lazy_dataclasses import dataclass
from emel.text.speculation import MIN_CHANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.graph.batch import Batch
    from emel.memory.sequence_memory import SequenceMemory
    from emel.text.wavefront import Compute

MODEL_DRAFT = 15
"""Tokens of a draft: each needs a run of the draft model, so it is seldom worth more."""
_FIRST_RATE = 0.7
_LEARNING = 0.1  # weight of the latest guess in the rate
_FORGETTING = 0.003  # by which the rate rises with each token that nothing is guessed for: so it is tried again
_CATCHING_UP = 4  # tokens: a draft that had more to read says nothing about what a guess costs


@dataclass(slots=True)
class DraftModel:
    """What computes guesses, for all requests of a wave; `clock` gives seconds."""

    graph: Compute
    batch: Batch
    memory: SequenceMemory
    clock: Callable[[], float]
    guess_seconds: float = 0.0  # of one guess, as measured lately


class ModelSpeculator:
    """The guesses of one request by a draft model, and how often they come true (emel.text.speculation.Speculator)."""

    __slots__ = ("_guesses", "_guesses_at", "_has_failed", "_known", "_model", "_n_ids", "_rate", "_sequence")

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._sequence: int | None = None
        self._known: list[int] = []  # tokens of the sequence
        self._guesses: list[int] = []  # of the latest draft, which began at _guesses_at
        self._guesses_at = self._n_ids = 0
        self._rate = _FIRST_RATE
        self._has_failed = False

    @property
    def guess_seconds(self) -> float:
        """What a guess costs before it is computed along."""
        return self._model.guess_seconds

    def follow(self, ids: Sequence[int]) -> bool:
        """Takes in what is new in `ids`, and whether it was as guessed; False once the draft model failed."""
        for guess, token in zip(self._guesses, ids[self._guesses_at :], strict=False):
            self._rate += _LEARNING * ((guess == token) - self._rate)
            if guess != token:
                break
        self._guesses, self._n_ids = [], len(ids)
        return not self._has_failed

    def chances(self, n: int) -> list[float]:
        """How likely the first 1, 2 .. n guesses are to come true, all of them; falling, cut off where hopeless."""
        self._rate += _FORGETTING * (1 - self._rate)
        if self._has_failed:
            return []
        n = min(n, MODEL_DRAFT, self._model.memory.n_ctx - self._n_ids)
        return [self._rate**index for index in range(1, n + 1) if self._rate**index >= MIN_CHANCE]

    def draft(self, ids: Sequence[int], n: int) -> list[int]:
        """The n tokens that are guessed to come next; fewer when the draft model cannot."""
        model = self._model
        begin = model.clock()
        try:
            n_new = self._catch_up(ids)
            guesses = [model.batch.argmax[0]]
            while len(guesses) < n and guesses[-1] >= 0:
                self._compute(guesses[-1:], Outputs.LAST)
                guesses.append(model.batch.argmax[0])
        except Exception:  # whatever it is, it is no reason to fail a request that needs no guess
            self.close()
            self._has_failed = True
            return []
        if n_new <= _CATCHING_UP:
            seconds = (model.clock() - begin) / len(guesses)
            model.guess_seconds += (_LEARNING if model.guess_seconds else 1.0) * (seconds - model.guess_seconds)
        self._guesses, self._guesses_at = [each for each in guesses if each >= 0], len(ids)
        return self._guesses

    def close(self) -> None:
        """Gives its memory back; a later draft starts anew."""
        sequence, self._sequence, self._known = self._sequence, None, []
        if sequence is not None:
            self._model.memory.close_sequence(sequence)

    def _catch_up(self, ids: Sequence[int]) -> int:
        """Computes what is missing of `ids`, at least the last one; returns how many tokens."""
        memory, known = self._model.memory, self._known
        if self._sequence is None:
            self._sequence, _ = memory.open_with_prefix((), reuse=False)
        n = min(len(known), len(ids) - 1)
        # All before the latest draft was chosen when it was known, and never changes.
        n_same = min(n, self._guesses_at)
        while n_same < n and known[n_same] == ids[n_same]:
            n_same += 1
        if memory.can_rollback(self._sequence, len(known) - n_same):
            memory.rollback(self._sequence, len(known) - n_same)
        else:  # a recurrent state forgets only so much
            self.close()
            return self._catch_up(ids)
        del known[n_same:]
        n_most = self._model.batch.capacity.max_tokens
        for begin in range(n_same, len(ids), n_most):
            is_last = begin + n_most >= len(ids)
            self._compute(ids[begin : begin + n_most], Outputs.LAST if is_last else Outputs.NONE)
        return len(ids) - n_same

    def _compute(self, ids: Sequence[int], outputs: Outputs) -> None:
        model = self._model
        assert self._sequence is not None
        model.batch.clear()
        (first,) = model.memory.reserve_all([(self._sequence, len(ids))])
        self._known += ids
        model.batch.add(ids, first, self._sequence, outputs=outputs)
        model.graph.compute(model.batch)
