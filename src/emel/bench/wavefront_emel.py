"""EMEL as a lane of the wavefront suite.

`python -m emel.bench.wavefront_emel MODEL THREADS CONTEXT SEQUENCES [ACTIVATIONS [MEMORY [SPECULATION]]]`

SPECULATION "none": nothing is guessed.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from emel.bench.lane_emel import ready_of
from emel.bench.protocol import private_stdout
from emel.bench.wavefront_protocol import serve_waves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel import Chunk, Completion, Model
    from emel.bench.protocol import Ready


class _Clock:
    """A listener that notes when each token came."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.times: list[float] = []
        self.is_over = threading.Event()
        self.error: Exception | None = None

    def on_chunk(self, chunk: Chunk) -> None:
        """A token without text of its own comes with the next one that has some."""
        self.times += [time.perf_counter() - self._began] * len(chunk.token_ids)

    def on_end(self, _completion: Completion) -> None:
        """It is over."""
        self.is_over.set()

    def on_failure(self, error: Exception) -> None:
        """It failed."""
        self.error = error
        self.is_over.set()


class EmelWaves:
    """EMEL behind the protocol."""

    def __init__(
        self,
        path: str,
        n_threads: int,
        n_ctx: int,
        n_sequences: int,
        activations: str = "int16",
        *,
        memory: str | None = None,
        guesses: bool = True,
    ) -> None:
        import emel

        options: dict[str, Any] = {} if guesses else {"speculation": None}
        self._model: Model = emel.load(
            path,
            n_threads=n_threads,
            n_ctx=n_ctx,
            n_lanes=n_sequences,
            activations=activations,
            memory=memory,
            **options,
        )

    def describe(self) -> Ready:
        """Name, version, kernel route and vocabulary."""
        return ready_of(self._model)

    def generate(self, prompts: Sequence[Sequence[int]], n_decode: int) -> list[list[float]]:
        """Submits all prompts at once; nothing is reused of earlier runs."""
        began = time.perf_counter()
        clocks = [_Clock(began) for _ in prompts]
        for prompt, clock in zip(prompts, clocks, strict=True):
            self._model.submit(prompt, clock, temperature=0, max_tokens=n_decode, cache_prompt=False)
        for clock in clocks:
            clock.is_over.wait()
            if clock.error is not None:
                raise clock.error
        return [clock.times for clock in clocks]


def main(arguments: Sequence[str]) -> int:
    """Serves one model until stdin ends."""
    model, n_threads, n_ctx, n_sequences, *rest = arguments
    counts = int(n_threads), int(n_ctx), int(n_sequences)
    activations, memory = rest[0] if rest else "int16", rest[1] if rest[1:] else None
    guesses = rest[2:] != ["none"]
    return serve_waves(
        lambda: EmelWaves(model, *counts, activations, memory=memory, guesses=guesses), sys.stdin, private_stdout()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
