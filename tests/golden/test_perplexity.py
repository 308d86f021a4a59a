"""The real small model's perplexity, against the float64 reference's and llama.cpp's on the same file and chunks."""

from __future__ import annotations

from pathlib import Path

import pytest

import emel
from emel.accuracy.chunks import DEFAULT_CONTEXT, chunks_of_text
from emel.accuracy.perplexity import measure_perplexity

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXT = Path(__file__).parent / "data" / "pride_and_prejudice.txt"
REFERENCE = 16.7806
"""By record_reference_logits.py beside this file, and `emel accuracy --base-logits`."""
LLAMA_CPP = 16.8325
"""By llama-cpp-python 0.3.36, its int8 activations."""


def test_perplexity_is_the_references_and_below_that_of_llama_cpp(smollm2_path: Path) -> None:
    with emel.load(smollm2_path, n_ctx=DEFAULT_CONTEXT, n_lanes=1, prefix_bytes=0) as model:
        chunks = chunks_of_text(model, TEXT.read_bytes())
        found = measure_perplexity(model, chunks)
    assert (len(chunks.ids), found.n_tokens) == (4, 1020)
    assert found.value == pytest.approx(REFERENCE, abs=1e-3)
    assert found.value <= LLAMA_CPP
    assert found.error == pytest.approx(1.382, abs=1e-3)
