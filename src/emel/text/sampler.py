"""The next token of a request: argmax when greedy, else one draw keyed by the request's seed and the position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.kernel.sampling import NativeSampler

if TYPE_CHECKING:
    from emel.graph.batch import Batch
    from emel.text.sampling import SamplingParams


class Sampler:
    """Chooses the tokens of one request by `params`, whose seed must be set unless they are greedy."""

    __slots__ = ("_native",)

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        self._native: NativeSampler | None = None
        if not params.is_greedy:
            assert params.seed is not None
            self._native = NativeSampler(
                n_vocab,
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                seed=params.seed,
            )

    def choose(self, batch: Batch, output: int, position: int) -> int:
        """The token that follows output row `output`, at `position` of its sequence; the row must be finite."""
        if self._native is None:
            return batch.argmax[output]
        return self._native.draw(batch.logits_address(output), position)
