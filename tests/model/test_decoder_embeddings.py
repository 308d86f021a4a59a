"""Embeddings by models that write text: the output matrix makes of them the logits the float64 reference has.

The row of the first or last token times the matrix is that token's logits, the mean row times it their mean (before
they are capped).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import emel
from emel.kernel.features import available_routes
from model.every_model import EVERY_MODEL
from model.reference_error import IDS, reference_of, total_error
from model.tiny_models import D_MODEL, write_tiny_model
from reference.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TOLERANCE = 1e-5


def uncapped(weights: Weights) -> NDArray[np.float64]:
    """What the output matrix makes of every token's row, (n_tokens, n_vocab)."""
    logits = reference_of(weights, IDS)
    if cap := float(weights.key("final_logit_softcapping", 0.0)):
        logits = cap * np.arctanh(logits / cap)
    return logits * float(weights.key("logit_scale", 1.0))


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_embeddings_are_the_rows_behind_the_last_norm(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL[name](), "F32")
    weights = Weights(path)
    rows = uncapped(weights)
    expected = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}
    output = "output.weight" if weights.has("output.weight") else "token_embd.weight"
    others = [IDS[:3], IDS[5:22]]
    with emel.load(path, n_threads=2, kv_type="f32") as model:
        for pooling, logits in expected.items():
            (embedding,) = model.embed(IDS, pooling=pooling, normalize=False)
            assert embedding.shape == (D_MODEL,)
            assert total_error(weights.product(output, embedding[None].astype(np.float64))[0], logits) < TOLERANCE
            together = model.embed([*others, IDS, *others], pooling=pooling, normalize=False)
            assert np.array_equal(together[2], embedding)
            assert np.array_equal(together[:2], together[3:])
        assert model.generate_ids(IDS, max_tokens=2).finish_reason in ("length", "stop")  # it still writes text


@pytest.mark.parametrize("isa", available_routes())
def test_embeddings_are_the_same_bits_on_every_route(tmp_path: Path, isa: str) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["qwen3"](), "Q4_K")
    with emel.load(path, n_threads=1) as best, emel.load(path, n_threads=3, isa=isa) as other:
        assert np.array_equal(other.embed(IDS, pooling="mean"), best.embed(IDS, pooling="mean"))
