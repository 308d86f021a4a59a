"""What the engine gives back: completions, the chunks of a stream, and where the time went."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one request. The first token counts to the prefill, all others to the decode."""

    n_prompt_tokens: int
    n_tokens: int
    prefill_seconds: float
    """From when it got a lane to its first token, in steps shared with others."""
    decode_seconds: float
    time_to_first_token: float
    """From when it was submitted, waiting for a lane included; 0 when there was no token."""
    queue_seconds: float = 0.0
    """From when it was submitted to when it got a lane."""
    n_cached_tokens: int = 0
    """Prompt tokens that an earlier request had computed; the prefill had only the others to do."""
    stalled_seconds: float = 0.0
    """Of `Model.measure`: the part of the decode that waited for streamed weights to be read."""

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens computed per second of prefill."""
        n_computed = self.n_prompt_tokens - self.n_cached_tokens
        return n_computed / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first per second of decode."""
        return (self.n_tokens - 1) / self.decode_seconds if self.n_tokens > 1 and self.decode_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer. finish_reason: "stop" (an end token or stop string), "length", or "cancelled".

    Its repr leaves out what is long: timings and sampling.
    """

    text: str
    token_ids: tuple[int, ...]
    """All chosen tokens, with the end token if there was one."""
    finish_reason: str
    timings: Timings = field(repr=False)
    n_prompt_tokens: int
    seed: int
    """The seed that was used, given or not; 0 when greedy without one."""
    sampling: Mapping[str, Any] = field(repr=False)
    """The effective sampling parameters."""
    n_cached_tokens: int = 0
    """Prompt tokens that were not computed, because an earlier request had."""
    n_draft_tokens: int = field(default=0, repr=False)
    """Tokens that were computed as guesses of what comes next."""
    n_accepted_tokens: int = field(default=0, repr=False)
    """Of them: those that came. The answer is the same without."""
    logprobs: list[Any] | None = None
    """What the sampler says of each token's probability, if it was asked to."""
    digests: tuple[str, ...] | None = field(default=None, repr=False)
    """Of the logits each token was chosen from, if they were asked for (emel.engine.transcript)."""
    stop: str | None = None
    """The stop string that ended it, if one did."""
    choices: tuple[Completion, ...] = ()
    """With n > 1: all completions, this one first."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer; joined, the texts are the completion's. The last chunk, and only it, has a completion."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    completion: Completion | None = None
    logprobs: list[Any] | None = None
    """Of its tokens, if they were asked for."""
