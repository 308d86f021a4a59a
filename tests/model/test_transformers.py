"""Models of transformers, converted: their logits and embeddings are the ones transformers computes.

Needs torch and transformers (`pip install --group transformers`), which nothing else does; skipped without. The model
is converted in float32 and computed with a float32 cache; transformers computes the same weights in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emel
from emel.convert.converting import convert_directory
from model.reference_error import total_error
from unit.convert.hf_models import put_dense

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from model.transformers_models import DECODERS, ENCODERS, N_VOCAB, make_model, save_model  # noqa: E402

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5  # relative RMS
IDS = [int(token) for token in np.random.default_rng(5).integers(3, 255, 80)]
SHORT = IDS[:40]
N_CTX = 64  # what LongRoPE stretches from


def exact(model: Any, ids: list[int]) -> NDArray[np.float64]:
    """Logits, or the last layer's rows, (n_tokens, width) in float64."""
    with torch.no_grad():
        found = model.double()(torch.tensor([ids]))
    rows = found.logits if hasattr(found, "logits") else found.last_hidden_state
    return np.asarray(rows[0].numpy(), dtype=np.float64)


@pytest.mark.parametrize("name", DECODERS)
def test_logits_of_converted_models_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = make_model(*DECODERS[name])
    save_model(model, tmp_path / "hf")
    convert_directory(tmp_path / "hf", tmp_path / "out.gguf", "f32")
    for ids, n_ctx in ((SHORT, N_CTX), (IDS, 2 * N_CTX)):
        with emel.load(tmp_path / "out.gguf", n_threads=1, n_lanes=1, n_ctx=n_ctx, kv_type="f32") as converted:
            logits = converted.logits(ids)
        expected = exact(model, ids)
        assert logits.shape == expected.shape == (len(ids), N_VOCAB)
        assert total_error(logits, expected) < TOLERANCE


@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_of_converted_encoders_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    model = make_model(*ENCODERS[name])
    save_model(model, tmp_path / "hf", has_word_pieces="bert" in name)
    expected = exact(model, IDS).mean(axis=0)
    if name == "gemma-embedding":
        for index, rows in ((2, 128), (3, 64)):
            matrix = np.random.default_rng(index).standard_normal((rows, 192 - rows)).astype(np.float32)
            put_dense(tmp_path / "hf", index, matrix)
            expected = expected @ matrix.T
    convert_directory(tmp_path / "hf", tmp_path / "out.gguf", "f32")
    with emel.load(tmp_path / "out.gguf", n_threads=1, kv_type="f32") as converted:
        embedding = converted.embed(IDS, normalize=False)[0]
    assert total_error(embedding, expected) < TOLERANCE
