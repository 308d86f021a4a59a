"""What the generation suite runs: each workload is a prompt length, a number of decode steps, and what is read off."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, TypeAlias

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.bench.protocol import Timings

Kind: TypeAlias = Literal["prefill", "decode", "answer", "cold start", "cold start ready", "cold start peak"]
Unit: TypeAlias = Literal["tokens/s", "s", "MB"]

N_SHORT_PROMPT = 16
"""Tokens of the prompt of an answer and of a cold start: a word or a short question in a chat."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table. Prefill gives tokens/s of the prompt, decode tokens/s after it, the others seconds.

    An answer is a short prompt and all its tokens, of which reading the prompt gives the first.

    When a cold start was ready and its peak of resident memory are rows beside it, not workloads of their own.
    """

    kind: Kind
    n_prompt: int
    n_decode: int

    @property
    def name(self) -> str:
        """What the row is called."""
        if self.kind == "prefill":
            return f"prefill {self.n_prompt}"
        if self.kind == "answer":
            return f"answer {self.n_decode + 1}"
        if self.kind != "decode":
            return self.kind
        depth = f" at depth {self.n_prompt}" if self.n_prompt > 1 else ""
        return f"decode {self.n_decode}{depth}"

    @property
    def unit(self) -> Unit:
        """The unit of the figure; of tokens/s more is better, of the others less."""
        units: dict[Kind, Unit] = {
            "answer": "s",
            "cold start": "s",
            "cold start ready": "s",
            "cold start peak": "MB",
        }
        return units.get(self.kind, "tokens/s")

    @property
    def n_ctx(self) -> int:
        """Positions of the context that the workload fills."""
        return self.n_prompt + self.n_decode

    def result(self, timings: Timings) -> float:
        """The workload's figure from one run of a prefill, a decode or an answer."""
        if self.kind == "prefill":
            return self.n_prompt / timings.prefill_seconds
        if self.kind == "answer":
            return timings.prefill_seconds + timings.decode_seconds
        return self.n_decode / timings.decode_seconds


def plan_workloads(
    prefill: Sequence[int], n_decode: int, depths: Sequence[int], answers: Sequence[int], *, cold_start: bool
) -> list[Workload]:
    """The suite's workloads in the order they run. A decode at depth 0 still needs one token to start from."""
    workloads = [Workload("prefill", n_prompt, 0) for n_prompt in prefill]
    workloads += [Workload("decode", max(depth, 1), n_decode) for depth in depths]
    workloads += [Workload("answer", N_SHORT_PROMPT, n_tokens - 1) for n_tokens in answers]
    if cold_start:
        workloads.append(Workload("cold start", N_SHORT_PROMPT, 0))
    return list(dict.fromkeys(workloads))


def prompt_ids(n_tokens: int, n_vocab: int) -> list[int]:
    """The same arbitrary token ids every time: the cost of a token does not depend on which it is."""
    choose = random.Random(0)  # noqa: S311 - not for secrets
    return [choose.randrange(n_vocab) for _ in range(n_tokens)]
