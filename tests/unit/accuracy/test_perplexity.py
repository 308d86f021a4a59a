"""Perplexity of known probabilities, and of a tiny model against its own logits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emel
from emel.accuracy.chunks import cut_chunks, visit_scored
from emel.accuracy.perplexity import log_softmax, measure_perplexity, summarize, surprises
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

N_CTX = 200  # scored rows need more than one step


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[emel.Model]:
    path: Path = tmp_path_factory.mktemp("accuracy") / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1), "Q8_0")
    with emel.load(path, n_ctx=N_CTX, n_threads=1, n_lanes=1) as loaded:
        yield loaded


def test_log_softmax_gives_probabilities_that_sum_to_one() -> None:
    rows = np.array([[0.0, 1.0, 2.0], [1000.0, 1000.0, -1000.0]], dtype=np.float32)
    assert np.exp(log_softmax(rows)).sum(axis=1) == pytest.approx([1.0, 1.0])
    assert log_softmax(rows)[1, 0] == pytest.approx(math.log(0.5))


def test_surprises_are_what_log_softmax_says_of_the_next_tokens() -> None:
    rows = np.random.default_rng(0).normal(0, 5, (4, 50)).astype(np.float32)
    expected = [-log_softmax(rows)[row, token] for row, token in enumerate([3, 0, 49, 7])]
    assert surprises(rows, [3, 0, 49, 7]) == pytest.approx(expected, rel=1e-6)


def test_perplexity_of_equal_chances_is_their_number_without_error() -> None:
    found = summarize(np.full(10, math.log(32)))
    assert (found.value, found.error) == pytest.approx((32.0, 0.0), abs=1e-6)
    assert found.n_tokens == 10


def test_perplexity_has_the_standard_error_of_the_mean_loss_times_itself() -> None:
    losses = np.array([1.0, 2.0, 4.0, 5.0])
    found = summarize(losses)
    assert found.value == pytest.approx(math.exp(3.0))
    assert found.error == pytest.approx(math.exp(3.0) * losses.std(ddof=1) / math.sqrt(4))


def test_perplexity_of_one_token_has_no_error() -> None:
    assert math.isnan(summarize(np.array([1.0])).error)


def test_scored_rows_are_the_models_logits_of_the_second_half(model: emel.Model) -> None:
    ids = np.random.default_rng(1).integers(0, 256, N_CTX).tolist()
    rows: list[NDArray[np.float32]] = []
    next_ids: list[int] = []

    def keep(some: NDArray[np.float32], after: Sequence[int]) -> None:
        rows.append(some.copy())
        next_ids.extend(after)

    visit_scored(model, ids, N_CTX // 2, keep)
    assert len(rows) > 1
    assert np.array_equal(np.concatenate(rows), model.logits(ids)[N_CTX // 2 : -1])
    assert next_ids == ids[N_CTX // 2 + 1 :]


def test_perplexity_is_that_of_the_models_logits_chunk_by_chunk(model: emel.Model) -> None:
    ids = np.random.default_rng(2).integers(0, 256, 2 * N_CTX + 50).tolist()
    seen: list[tuple[int, int]] = []
    found = measure_perplexity(model, cut_chunks(ids, N_CTX), lambda n, so_far: seen.append((n, so_far.n_tokens)))
    halves = [ids[:N_CTX], ids[N_CTX : 2 * N_CTX]]
    losses = [surprises(model.logits(chunk)[N_CTX // 2 : -1], chunk[N_CTX // 2 + 1 :]) for chunk in halves]
    assert found == summarize(np.concatenate(losses))
    assert seen == [(1, 99), (2, 198)]
