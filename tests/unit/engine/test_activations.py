"""`activations="int8"`: asked for by name, told in the fingerprint, and as deterministic as the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emel
from emel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PROMPT = "to be or not to be, that is the question"


def logits(path: Path, *, chunk: int | None = None, **options: Any) -> NDArray[np.float32]:
    """(n_tokens, n_vocab) of the prompt."""
    with emel.load(path, **options) as model:
        return model.logits(model.tokenize(PROMPT), chunk=chunk)


def test_int8_gives_the_same_bits_with_any_threads_chunks_and_routes(tiny_path: Path) -> None:
    expected = logits(tiny_path, activations="int8", n_threads=1)
    assert np.array_equal(logits(tiny_path, activations="int8", n_threads=3), expected)
    assert np.array_equal(logits(tiny_path, activations="int8", isa="scalar", n_threads=1), expected)
    for chunk in (1, 7, 16):
        assert np.array_equal(logits(tiny_path, activations="int8", n_threads=2, chunk=chunk), expected)


def test_int8_is_near_the_default_and_not_equal_to_it(tiny_path: Path) -> None:
    exact = logits(tiny_path)
    assert np.array_equal(logits(tiny_path, activations="int16"), exact)
    error = logits(tiny_path, activations="int8") - exact
    assert 1e-4 < np.sqrt((error**2).mean() / (exact**2).mean()) < 0.05


def test_fingerprints_tell_activations_apart(tiny_path: Path) -> None:
    with emel.load(tiny_path) as exact, emel.load(tiny_path, activations="int8") as coarse:
        assert (exact.activations, coarse.activations) == ("int16", "int8")
        assert coarse.fingerprint == exact.fingerprint.replace("emel-1-", "emel-1-int8-")


@pytest.mark.parametrize("name", ["int4", "", "INT8"])
def test_unknown_activations_are_refused(name: str, tiny_path: Path) -> None:
    with pytest.raises(RequestError, match=f"^there are no activations '{name}': allowed are int16, int8"):
        emel.load(tiny_path, activations=name)
