"""Perplexity: e to the mean negative log-likelihood of a text's tokens, with the standard error of that figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emel.accuracy.chunks import visit_scored
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from emel.accuracy.chunks import Chunks
    from emel.engine.model import Model


@dataclass(frozen=True, slots=True)
class Perplexity:
    """A perplexity, its standard error, and of how many tokens it is."""

    value: float
    error: float
    n_tokens: int


def log_softmax(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Log-probabilities (n, n_vocab) float64 of logits of the same shape."""
    shifted = rows.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def surprises(rows: NDArray[np.floating], next_ids: Sequence[int]) -> NDArray[np.float64]:
    """(n,) negative log-likelihood of each next token given its row of logits (n, n_vocab)."""
    shifted = rows - rows.max(axis=1, keepdims=True)
    # Exponentials in float32, their sum in float64: what is lost is far below what a logit is exact to.
    sums = np.exp(shifted).sum(axis=1, dtype=np.float64)
    found = shifted[np.arange(len(next_ids)), np.asarray(next_ids)].astype(np.float64)
    return np.asarray(np.log(sums) - found)


def summarize(losses: NDArray[np.float64]) -> Perplexity:
    """The perplexity of tokens with these negative log-likelihoods; the error by the delta method, as llama.cpp's."""
    n = len(losses)
    value = math.exp(float(losses.mean()))
    error = value * math.sqrt(float(losses.var()) / (n - 1)) if n > 1 else math.nan
    return Perplexity(value, error, n)


def measure_perplexity(
    model: Model, chunks: Chunks, report: Callable[[int, Perplexity], None] | None = None
) -> Perplexity:
    """The perplexity of all chunks. report(n, so far) is called after each; Errors: those of `visit_scored`."""
    losses: list[NDArray[np.float64]] = []
    for done, chunk in enumerate(chunks.ids, 1):
        visit_scored(model, chunk, chunks.first, lambda rows, ids: losses.append(surprises(rows, ids)))
        if report is not None:
            report(done, summarize(np.concatenate(losses)))
    return summarize(np.concatenate(losses))
