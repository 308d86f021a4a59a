"""What the engine gives back: completions, the chunks of a stream, and where the time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one request. The first token counts to the prefill, all others to the decode."""

    n_prompt_tokens: int
    n_tokens: int
    prefill_seconds: float
    decode_seconds: float
    time_to_first_token: float
    """From the start (of a stream: its first read), waiting for others included; 0 when there was no token."""

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens per second of prefill."""
        return self.n_prompt_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first per second of decode."""
        return (self.n_tokens - 1) / self.decode_seconds if self.n_tokens > 1 and self.decode_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished answer. finish_reason: "stop" (an end token or stop string), "length", or "cancelled"."""

    text: str
    token_ids: tuple[int, ...]
    """All chosen tokens, with the end token if there was one."""
    finish_reason: str
    timings: Timings
    n_prompt_tokens: int
    seed: int
    """The seed that was used, given or not; 0 when greedy without one."""
    sampling: Mapping[str, float | int | None]
    """The effective sampling parameters."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer; joined, the texts are the completion's. The last chunk, and only it, has a completion."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    completion: Completion | None = None
