"""How the wavefront suite talks to an engine in a process of its own: one JSON object a line, on stdin and stdout.

child   {"ready": {"engine": "EMEL", "version": "0.1.0", "route": "avx2", "n_vocab": 49152}}     once, when loaded
parent  {"prompts": [[5, 17], [8, 9]], "n_decode": 64}
child   {"times": [[0.10, 0.11], [0.12, 0.14]]}      for each sequence, when each of its tokens was there, in seconds
child   {"error": "the text of what went wrong"}     in place of either of its lines
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from emel.bench.lane import Lane
from emel.bench.protocol import Described, LaneError, decode_field, serve_answers
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class WaveTimes:
    """When each token of each sequence was there, in seconds from the start, ascending; at least one of each."""

    times: list[list[float]]

    @property
    def total_rate(self) -> float:
        """Tokens per second, reading the prompts included."""
        return sum(map(len, self.times)) / max(sequence[-1] for sequence in self.times)

    @property
    def decode_rate(self) -> float:
        """Tokens per second from when every sequence had its first one; of one token each, the total rate."""
        begin = max(sequence[0] for sequence in self.times)
        n_tokens = sum(time > begin for sequence in self.times for time in sequence)
        seconds = max(sequence[-1] for sequence in self.times) - begin
        return n_tokens / seconds if seconds > 0 else self.total_rate

    @property
    def first_tokens(self) -> list[float]:
        """Seconds to the first token of each sequence."""
        return [sequence[0] for sequence in self.times]

    @property
    def gaps(self) -> list[float]:
        """Seconds between a token and the next of the same sequence."""
        return [after - before for each in self.times for before, after in pairwise(each)]


class WaveEngine(Described, Protocol):
    """What a lane of the suite serves."""

    def generate(self, prompts: Sequence[Sequence[int]], n_decode: int) -> list[list[float]]:
        """Answers all prompts at once, each with n_decode (1 or more) of the likeliest tokens: when they were there."""


class WaveLane(Lane):
    """A running engine."""

    def generate(self, prompts: Sequence[Sequence[int]], n_decode: int) -> WaveTimes:
        """One run; LaneError when the engine fails or ends."""
        _ = self.ready
        self._write(json.dumps({"prompts": [list(prompt) for prompt in prompts], "n_decode": n_decode}) + "\n")
        return self._hear(decode_times)


def decode_times(line: str) -> WaveTimes:
    """The child's answer; LaneError when it is an error or something else."""
    times = decode_field(line, "times", list)
    if not times or not all(isinstance(each, list) and each for each in times):
        raise LaneError(f"expected the times of every sequence, got {line.strip()!r}")
    return WaveTimes(times)


def serve_waves(load: Callable[[], WaveEngine], requests: TextIO, answers: TextIO) -> int:
    """The child's side: loads, describes, answers until `requests` or its listener ends. Returns the exit code."""
    return serve_answers(load, _answered, requests, answers)


def _answered(engine: WaveEngine, request: dict[str, Any]) -> dict[str, object]:
    return {"times": engine.generate(request["prompts"], request["n_decode"])}
