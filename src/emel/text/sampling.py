"""Sampling parameters: the one table of names, defaults (llama.cpp's, which people know), ranges and meanings.

The steps run in the order of `samplers`. Mirostat, when it is on, takes the place of all of them but the temperature.
docs/reference/sampling.md shows this table (tests/unit/text/test_sampling_reference.py compares them).
"""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from typing import Any

from emel.lazy_dataclasses import dataclass
from emel.text.sampling_fields import (
    Biases,
    Kind,
    Number,
    SamplingError,
    Sequences,
    Steps,
    Switch,
    Texts,
    Tokens,
)

__all__ = ["MAX_ANSWERS", "STEPS", "SamplingError", "SamplingParams"]

MAX_ANSWERS = 256
"""To one prompt."""
_MOST = 2**31 - 1
_MAX_SEED = 2**64 - 1
# Below it 1/temperature times a difference of logits means nothing any more, and float32 may read 0.
_SMALLEST_TEMPERATURE = 1e-6

STEPS = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
}
"""Name of a step -> its letter, in the order they run unless asked otherwise (llama.cpp's)."""
_ALIASES = {"temp": "temperature", "typical_p": "typ_p", "typical": "typ_p", "nucleus": "top_p"}


def _field(default: Any, kind: Kind, meaning: str) -> Any:
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


def _number(default: float, low: float, high: float, note: str, meaning: str) -> Any:
    return _field(default, Number(float, float(low), float(high), note), meaning)


def _whole(default: int, low: int, high: float, note: str, meaning: str) -> Any:
    return _field(default, Number(int, low, high, note), meaning)


def _whole_or_none(low: int, high: float, note: str, meaning: str) -> Any:
    return _field(None, Number(int, low, high, note, may_be_none=True), meaning)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and how many. Checked when made: SamplingError names field, value and range."""

    temperature: float = _number(0.8, 0, 100, "0 is greedy", "divides the logits: below 1 surer, above 1 more varied")
    dynatemp_range: float = _number(0.0, 0, 100, "0 is off", "temperature moves by this much with the entropy")
    dynatemp_exponent: float = _number(1.0, 0, 100, "", "how the entropy maps to that range")
    top_k: int = _whole(40, 0, _MOST, "0 is off", "choose among the k likeliest")
    top_p: float = _number(0.95, 0, 1, "1 is off", "choose among the likeliest that make up p")
    min_p: float = _number(0.05, 0, 1, "0 is off", "drop tokens less likely than this part of the likeliest")
    typical_p: float = _number(1.0, 0, 1, "1 is off", "choose among those nearest the entropy that make up p")
    top_n_sigma: float = _number(-1.0, -1, 100, "0 and less is off", "drop logits n deviations below the largest")
    xtc_probability: float = _number(0.0, 0, 1, "0 is off", "how often XTC drops the likeliest")
    xtc_threshold: float = _number(0.1, 0, 1, "more than 0.5 is off", "how likely a token is that XTC drops")
    min_keep: int = _whole(0, 0, _MOST, "", "tokens that top_p, min_p, typical_p and XTC leave at least")
    repeat_penalty: float = _number(1.0, 0.01, 100, "1 is off", "divides logits of recent tokens")
    repeat_last_n: int = _whole(64, -1, _MOST, "0 is off, -1 is all", "how many tokens are recent")
    presence_penalty: float = _number(0.0, -100, 100, "0 is off", "taken off logits of recent tokens")
    frequency_penalty: float = _number(0.0, -100, 100, "0 is off", "the same, as often as a token came")
    dry_multiplier: float = _number(0.0, 0, 100, "0 is off", "what continuing a repetition costs")
    dry_base: float = _number(1.75, 1, 100, "", "how the cost grows with each token repeated")
    dry_allowed_length: int = _whole(2, 0, _MOST, "", "tokens that may be repeated at little cost")
    dry_penalty_last_n: int = _whole(64, -1, _MOST, "0 is off, -1 is all", "how many tokens are looked through")
    dry_sequence_breakers: tuple[str, ...] = _field(
        ("\n", ":", '"', "*"), Texts(64, 64), "texts that no repetition reaches across"
    )
    mirostat: int = _whole(0, 0, 2, "0 is off, else its version", "holds the surprise; the other steps are off then")
    mirostat_tau: float = _number(5.0, 0, 100, "", "the surprise wanted, in bits")
    mirostat_eta: float = _number(0.1, 0, 100, "", "how fast it is approached")
    samplers: tuple[str, ...] = _field(tuple(STEPS), Steps(STEPS, _ALIASES), "the steps, in their order")
    logit_bias: tuple[tuple[int, float], ...] = _field((), Biases(1e6), "added to logits of tokens before all steps")
    ignore_eos: bool = _field(False, Switch(), "never choose a token that ends the answer")
    stop_token_ids: tuple[int, ...] = _field((), Tokens(), "tokens that end the answer like the model's own")
    min_tokens: int = _whole(0, 0, _MOST, "", "no token may end the answer before so many")
    max_tokens: int | None = _whole_or_none(0, math.inf, "None is until the end", "most tokens to write")
    n: int = _whole(1, 1, MAX_ANSWERS, "", "how many answers")
    logprobs: int | None = _whole_or_none(
        0, 20, "None is off", "log probabilities of the token chosen and of so many likeliest"
    )
    seed: int | None = _whole_or_none(0, _MAX_SEED, "None is random", "of the draws")
    dry_breaker_ids: tuple[tuple[int, ...], ...] = _field(
        (), Sequences(), "dry_sequence_breakers as tokens of the model, filled in by the engine"
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            checked = each.metadata["kind"].check(each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, checked)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise SamplingError("min_tokens", self.min_tokens, f"whole numbers from 0 to max_tokens, {self.max_tokens}")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken: also at temperatures too small to tell from 0."""
        return self.temperature < _SMALLEST_TEMPERATURE

    def with_seed(self, seed: int) -> SamplingParams:
        """The same with a seed, if it has none yet: what is echoed is what was used."""
        return self if self.seed is not None else replace(self, seed=seed)

    def check_vocabulary(self, n_vocab: int) -> None:
        """SamplingError when a bias or stop token is no token of a vocabulary of this size."""
        allowed = f"token ids of the vocabulary, 0 to {n_vocab - 1}"
        for token, _ in self.logit_bias:
            if token >= n_vocab:
                raise SamplingError("logit_bias", token, allowed)
        for token in self.stop_token_ids:
            if token >= n_vocab:
                raise SamplingError("stop_token_ids", token, allowed)

    def effective(self) -> dict[str, Any]:
        """All values by name, for echoing: JSON can write them. A bias of never is False."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "dry_breaker_ids"}
        values["logit_bias"] = [[token, False if bias == -math.inf else bias] for token, bias in self.logit_bias]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
