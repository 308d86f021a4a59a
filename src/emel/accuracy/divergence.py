"""How far a model's logits are from a base's on the same tokens: the base may be a reference, or the unquantised model.

KL divergence sum(p log(p / q)) of the base's probabilities p and the model's q, in nats; agreement on the likeliest
token; the RMS of what logits differ by, also relative to the RMS of the base's logits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emel.accuracy.chunks import visit_scored
from emel.accuracy.perplexity import Perplexity, log_softmax, summarize
from emel.errors import RequestError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from emel.accuracy.chunks import Chunks
    from emel.engine.model import Model


@dataclass(frozen=True, slots=True)
class Divergence:
    """The figures of the file's header over `n_tokens` tokens; `kl_error` is the standard error of the mean."""

    n_tokens: int
    mean_kl: float
    kl_error: float
    largest_kl: float
    top1_agreement: float  # 0 to 1
    rms_error: float  # of logits
    relative_rms_error: float
    perplexity: Perplexity
    base_perplexity: Perplexity


class DivergenceSums:
    """What `Divergence` is made of, row by row."""

    def __init__(self) -> None:
        self._kl: list[NDArray[np.float64]] = []
        self._losses: list[NDArray[np.float64]] = []
        self._base_losses: list[NDArray[np.float64]] = []
        self._n_equal = 0
        self._n_values = 0
        self._squared_error = self._squared_base = 0.0

    def add(self, rows: NDArray[np.floating], base: NDArray[np.floating], next_ids: Sequence[int]) -> None:
        """Logits (n, n_vocab) of the model and of the base, and the n tokens that follow."""
        at, ids = np.arange(len(next_ids)), np.asarray(next_ids)
        log_q, log_p = log_softmax(rows), log_softmax(base)
        self._losses.append(-log_q[at, ids])
        self._base_losses.append(-log_p[at, ids])
        self._kl.append((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
        self._n_equal += int((rows.argmax(axis=1) == base.argmax(axis=1)).sum())
        error = rows.astype(np.float64) - base
        self._n_values += error.size
        self._squared_error += float(np.vdot(error, error))
        self._squared_base += float(np.vdot(base, base.astype(np.float64)))

    def result(self) -> Divergence:
        """The figures of all rows so far; there must be some."""
        kl = np.concatenate(self._kl)
        n = len(kl)
        return Divergence(
            n_tokens=n,
            mean_kl=float(kl.mean()),
            kl_error=math.sqrt(float(kl.var()) / (n - 1)) if n > 1 else math.nan,
            largest_kl=float(kl.max()),
            top1_agreement=self._n_equal / n,
            rms_error=math.sqrt(self._squared_error / self._n_values),
            relative_rms_error=math.sqrt(self._squared_error / self._squared_base) if self._squared_base else math.nan,
            perplexity=summarize(np.concatenate(self._losses)),
            base_perplexity=summarize(np.concatenate(self._base_losses)),
        )


def measure_divergence(
    model: Model,
    chunks: Chunks,
    base_rows: Callable[[int], NDArray[np.floating]],
    report: Callable[[int, Divergence], None] | None = None,
) -> Divergence:
    """The divergence of a model from a base. base_rows(chunk): the base's scored logits (n_scored, n_vocab) of a chunk.

    report(n, so far) is called after each chunk. RequestError when the base has another vocabulary.
    """
    sums = DivergenceSums()
    for index, chunk in enumerate(chunks.ids):
        base = base_rows(index)
        if base.shape[1] != model.n_vocab:
            raise RequestError(f"the base has {base.shape[1]} tokens in its vocabulary, the model {model.n_vocab}")
        begin = 0

        def compare(rows: NDArray[np.float32], next_ids: Sequence[int], base: NDArray[np.floating] = base) -> None:
            nonlocal begin
            sums.add(rows, base[begin : begin + len(rows)], next_ids)
            begin += len(rows)

        visit_scored(model, chunk, chunks.first, compare)
        if report is not None:
            report(index + 1, sums.result())
    return sums.result()


def scored_logits(model: Model, chunk: Sequence[int], first: int) -> NDArray[np.float32]:
    """The scored logits (n_scored, n_vocab) of one chunk."""
    found: list[NDArray[np.float32]] = []
    visit_scored(model, chunk, first, lambda rows, _ids: found.append(rows.copy()))
    return np.concatenate(found)
