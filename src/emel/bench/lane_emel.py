"""EMEL as a benchmark lane: `python -m emel.bench.lane_emel MODEL THREADS CONTEXT [ACTIVATIONS [MEMORY]]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from emel.bench.protocol import Ready, Timings, private_stdout, serve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel import Model


def ready_of(model: Model) -> Ready:
    """What EMEL says of itself, with this model."""
    from emel.bench.machine import emel_version, route_name

    return Ready("EMEL", emel_version(), route_name(model), model.n_vocab)


class EmelEngine:
    """EMEL behind the protocol."""

    def __init__(
        self, path: str, n_threads: int, n_ctx: int, activations: str = "int16", memory: str | None = None
    ) -> None:
        import emel

        self._model: Model = emel.load(path, n_threads=n_threads, n_ctx=n_ctx, activations=activations, memory=memory)

    def describe(self) -> Ready:
        """Name, version, kernel route and vocabulary."""
        return ready_of(self._model)

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """Prefills exactly these tokens in an empty context, then takes n_decode greedy steps."""
        before = self._model.wave.traffic
        timings = self._model.measure(prompt_ids, n_decode)
        after = self._model.wave.traffic
        return Timings(
            timings.prefill_seconds,
            timings.decode_seconds,
            stalled_seconds=timings.stalled_seconds,
            expert_bytes=after.n_expert_bytes - before.n_expert_bytes if before and after else 0,
            missing_expert_bytes=after.n_missing_bytes - before.n_missing_bytes if before and after else 0,
        )


def main(arguments: Sequence[str]) -> int:
    """Serves one model until stdin ends."""
    model, n_threads, n_ctx, *rest = arguments
    answers = private_stdout()
    return serve(lambda: EmelEngine(model, int(n_threads), int(n_ctx), *rest), sys.stdin, answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
