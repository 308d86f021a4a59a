"""Divergence: known distributions, and a tiny model against itself and against its quantised copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emel
from emel.accuracy.chunks import cut_chunks
from emel.accuracy.divergence import DivergenceSums, measure_divergence, scored_logits
from emel.errors import RequestError
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = cut_chunks(np.random.default_rng(0).integers(0, 256, 200).tolist(), 100)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[emel.Model, emel.Model]]:
    """The same weights as F32 and as Q4_0."""
    folder = tmp_path_factory.mktemp("accuracy")
    for kind in ("F32", "Q4_0"):
        write_tiny_llama(folder / f"{kind}.gguf", Geometry(n_layers=1), kind)
    with (
        emel.load(folder / "F32.gguf", n_ctx=100, n_threads=1, n_lanes=1) as exact,
        emel.load(folder / "Q4_0.gguf", n_ctx=100, n_threads=1, n_lanes=1) as rough,
    ):
        yield exact, rough


def test_divergence_of_known_distributions() -> None:
    sums = DivergenceSums()
    base = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    rows = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.2, 0.7]]))
    sums.add(rows, base, [0, 2])
    found = sums.result()
    kl = 0.5 * math.log(2) - 0.25 * math.log(2)
    assert found.n_tokens == 2
    assert found.mean_kl == pytest.approx(kl / 2)
    assert found.largest_kl == pytest.approx(kl)
    assert found.kl_error == pytest.approx(kl / 2)
    assert found.top1_agreement == 0.5
    assert found.rms_error == pytest.approx(math.log(2) * math.sqrt(2 / 6))
    assert found.relative_rms_error == pytest.approx(found.rms_error / math.sqrt((base**2).mean()))
    assert found.perplexity.value == pytest.approx(1 / math.sqrt(0.25 * 0.7))
    assert found.base_perplexity.value == pytest.approx(1 / math.sqrt(0.5 * 0.7))


def test_a_model_does_not_diverge_from_itself(models: tuple[emel.Model, emel.Model]) -> None:
    exact, _ = models
    found = measure_divergence(exact, CHUNKS, lambda chunk: scored_logits(exact, CHUNKS.ids[chunk], CHUNKS.first))
    assert (found.mean_kl, found.rms_error, found.top1_agreement) == (0.0, 0.0, 1.0)
    assert found.perplexity == found.base_perplexity
    assert found.n_tokens == 2 * 49


def test_a_quantised_model_diverges_from_the_one_it_was(models: tuple[emel.Model, emel.Model]) -> None:
    exact, rough = models
    seen: list[int] = []
    found = measure_divergence(
        rough,
        CHUNKS,
        lambda chunk: scored_logits(exact, CHUNKS.ids[chunk], CHUNKS.first),
        lambda done, so_far: seen.append(so_far.n_tokens),
    )
    assert found.mean_kl > 1e-4
    assert 0.02 < found.relative_rms_error < 0.5
    assert seen == [49, 98]


def test_a_base_with_another_vocabulary_is_refused(models: tuple[emel.Model, emel.Model]) -> None:
    with pytest.raises(RequestError, match=r"^the base has 7 tokens in its vocabulary, the model 320$"):
        measure_divergence(models[0], CHUNKS, lambda chunk: np.zeros((49, 7)))
