"""The next token of a request: what may not be is ruled out, then the chain of steps, then one draw.

`choose` leaves all state alone, so that it may be asked again; `accept` says which token was really taken. Greedy, and
with nothing that changes logits, the token is the plan's own argmax and no logit is looked at.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

from emel.kernel.buffers import address_of
from emel.kernel.sampling import NativeSampler, Step, log_probabilities
from emel.lazy_dataclasses import dataclass
from emel.text.constraint import ConstraintFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from emel.graph.batch import Batch
    from emel.text.constraint import Constraint
    from emel.text.sampling import SamplingParams

_STEPS = {
    "penalties": Step.PENALTIES,
    "dry": Step.DRY,
    "top_n_sigma": Step.TOP_N_SIGMA,
    "top_k": Step.TOP_K,
    "typ_p": Step.TYPICAL_P,
    "top_p": Step.TOP_P,
    "min_p": Step.MIN_P,
    "xtc": Step.XTC,
    "temperature": Step.TEMPERATURE,
}
# Fields that the native chain has by the same name.
_SHARED = (
    "dynatemp_range", "dynatemp_exponent", "top_n_sigma", "typical_p", "top_p", "min_p", "xtc_probability",
    "xtc_threshold", "repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
    "mirostat", "top_k", "min_keep", "repeat_last_n", "dry_penalty_last_n", "dry_allowed_length",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of probabilities before all steps, finite: of the token chosen, and of the likeliest."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """(token, logprob), the likeliest first, the lowest id first among equals."""


class Sampler:
    """Chooses the tokens of one request by `params`, whose seed must be set unless they are greedy.

    `prompt_ids`: what came before, for penalties and DRY. `end_ids`: the model's tokens that end an answer.
    ValueError for a bias or stop token outside the vocabulary.
    """

    __slots__ = (
        "_constraint",
        "_end_ids",
        "_end_mask",
        "_is_plain",
        "_last",
        "_looks_back",
        "_n_accepted",
        "_n_vocab",
        "_native",
        "_params",
    )

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        *,
        prompt_ids: Sequence[int] = (),
        end_ids: AbstractSet[int] = frozenset(),
        constraint: Constraint | None = None,
    ) -> None:
        assert params.is_greedy or params.seed is not None
        params.check_vocabulary(n_vocab)
        self._params = params
        self._n_vocab = n_vocab
        self._end_ids = end_ids
        self._end_mask = _bits(end_ids, n_vocab) if constraint is not None else array("I")
        self._constraint = constraint
        self._n_accepted = 0
        self._last: tuple[int, float] | None = None  # the token chosen last and its surprise, for Mirostat
        self._looks_back = any(_window(params, step) != 0 for step in _LOOK_BACK)
        self._native: NativeSampler | None = None
        self._is_plain = True
        if not params.is_greedy or constraint is not None or self._looks_back or params.logit_bias or self._banned():
            self._native = _native_sampler(params, n_vocab, prompt_ids)
            self._rule_out()

    @property
    def is_argmax(self) -> bool:
        """Whether every token is the likeliest, whatever came before: then nothing need be asked, or told of tokens."""
        return self._native is None

    def choose(self, batch: Batch, output: int, position: int) -> int:
        """The token that follows output row `output`, at `position` of its sequence.

        The row must be finite. RuntimeError when the constraint and the biases leave no token.
        """
        native = self._native
        if native is None or self._is_plain:
            return batch.argmax[output]
        token = native.choose(batch.logits_address(output), position, self._allowed())
        if self._params.mirostat:
            self._last = (token, native.surprise)
        return token

    def accept(self, token: int) -> None:
        """The token was taken: penalties, DRY, Mirostat, `min_tokens` and the constraint take note of it."""
        self._n_accepted += 1
        native = self._native
        if native is None:
            return
        native.accept(token)
        last, self._last = self._last, None
        if last is not None and last[0] == token:
            native.mu -= self._params.mirostat_eta * (last[1] - self._params.mirostat_tau)
        if self._constraint is not None:
            self._constraint.accept(token)
        if self._constraint is not None or self._n_accepted == self._params.min_tokens:
            self._rule_out()

    def logprobs(self, batch: Batch, output: int, token: int) -> TokenLogprobs | None:
        """Of a token that output row `output` led to, and of the likeliest; None when they were not asked for."""
        n_top = self._params.logprobs
        if n_top is None:
            return None
        (_, logprob), *top = log_probabilities(batch.logits_address(output), self._n_vocab, token, n_top)
        return TokenLogprobs(token, logprob, tuple(top))

    def _allowed(self) -> int:
        """The address of the bits of what is allowed now; 0 for everything."""
        constraint = self._constraint
        if constraint is None:
            return 0
        if constraint.is_over and self._end_ids:
            return self._end_mask.buffer_info()[0]
        mask = constraint.mask()
        if mask is None or isinstance(mask, int):
            return mask or 0
        n_bytes = 4 * ((self._n_vocab + 31) // 32)
        if mask.nbytes < n_bytes:  # native code would read beyond it
            raise ConstraintFailed(f"the constraint's mask has {mask.nbytes} bytes: the vocabulary needs {n_bytes}")
        return address_of(mask)

    def _banned(self) -> AbstractSet[int]:
        """Tokens that would end the answer where it must not end yet."""
        params = self._params
        banned = self._end_ids if params.ignore_eos else frozenset()
        return banned | self._end_ids | set(params.stop_token_ids) if self._n_accepted < params.min_tokens else banned

    def _rule_out(self) -> None:
        """Brings the biases up to date. What must end now is left to end: no bias holds then."""
        native, params = self._native, self._params
        if native is None:
            return
        is_over = self._constraint is not None and self._constraint.is_over
        banned = () if is_over else sorted(self._banned())
        native.set_biases((*(() if is_over else params.logit_bias), *((token, -math.inf) for token in banned)))
        self._is_plain = (
            params.is_greedy and self._constraint is None and not (banned or params.logit_bias or self._looks_back)
        )


def _native_sampler(params: SamplingParams, n_vocab: int, prompt_ids: Sequence[int]) -> NativeSampler:
    windows = {step: _window(params, step) for step in _LOOK_BACK}
    window = -1 if -1 in windows.values() else max(windows.values())
    return NativeSampler(
        n_vocab,
        steps=[_STEPS[name] for name in params.samplers if windows.get(name) != 0],
        history=prompt_ids if window < 0 else prompt_ids[len(prompt_ids) - min(window, len(prompt_ids)) :],
        window=None if window < 0 else window,
        breakers=params.dry_breaker_ids,
        seed=params.seed or 0,
        temperature=0.0 if params.is_greedy else params.temperature,
        mirostat_mu=2 * params.mirostat_tau,
        **{name: getattr(params, name) for name in _SHARED},
    )


_LOOK_BACK = ("penalties", "dry")


def _window(params: SamplingParams, step: str) -> int:
    """How many of the latest tokens a step looks at: 0 when it is off, -1 for all."""
    if step not in params.samplers or params.mirostat:
        return 0
    if step == "dry":
        return params.dry_penalty_last_n if params.dry_multiplier else 0
    is_on = params.repeat_penalty != 1 or params.presence_penalty or params.frequency_penalty
    return params.repeat_last_n if is_on else 0


def _bits(tokens: Iterable[int], n_vocab: int) -> array[int]:
    """A bit for each token of the vocabulary, 1 for these."""
    words = array("I", bytes(4 * ((n_vocab + 31) // 32)))
    for token in tokens:
        words[token // 32] |= 1 << token % 32
    return words
