"""What a model is read from and for: split files, contexts beyond the original one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from model.conformance import Runner
from model.reference_error import IDS, reference_of, total_error
from model.tiny_models import TINY_MODELS, write_tiny_model
from reference import phi3
from reference.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path


def test_split_models_give_the_bits_of_whole_ones(tmp_path: Path) -> None:
    whole, stem = tmp_path / "whole.gguf", tmp_path / "split.gguf"
    for name in ("phi3", "gemma3"):
        write_tiny_model(whole, TINY_MODELS[name](), "Q8_0")
        write_tiny_model(stem, TINY_MODELS[name](), "Q8_0", tensors_a_part=9)
        parts = sorted(tmp_path.glob("split-*.gguf"))
        assert len(parts) > 2
        with Runner(whole) as runner:
            expected = runner.logits(IDS)
        with Runner(parts[0]) as runner:
            assert np.array_equal(runner.logits(IDS), expected), name
        for part in parts:
            part.unlink()


@pytest.mark.parametrize(("n_ctx", "is_long"), [(64, False), (65, True), (256, True), (None, True), (1000, True)])
def test_long_rope_takes_the_factors_of_the_context(tmp_path: Path, n_ctx: int | None, is_long: bool) -> None:
    path = tmp_path / "phi3.gguf"
    write_tiny_model(path, TINY_MODELS["phi3"](), "Q8_0")
    with Runner(path, n_ctx=n_ctx) as runner:
        logits = runner.logits(IDS)
    weights = Weights(path)
    assert total_error(logits, phi3.forward(weights, IDS, 256 if is_long else 64)) < 0.002
    assert total_error(logits, phi3.forward(weights, IDS, 64 if is_long else 256)) > 0.1


def test_windows_hide_what_lies_before_them(tmp_path: Path) -> None:
    """Only what a window of 16 keys in each of three layers lets through reaches the last token."""
    path = tmp_path / "window.gguf"
    write_tiny_model(path, TINY_MODELS["llama-window"](), "F32")
    ids = [*IDS, *IDS]
    with Runner(path) as runner:
        logits = runner.logits(ids)
        reach = 3 * (16 - 1)
        at = len(ids) - 1 - reach
        before, inside = ids.copy(), ids.copy()
        before[at - 1], inside[at] = 1, 1
        assert np.array_equal(runner.logits(before)[-1], logits[-1])
        assert not np.array_equal(runner.logits(inside)[-1], logits[-1])


def test_references_of_the_variants_differ_from_the_plain_ones(tmp_path: Path) -> None:
    """Guards the kit: a window, a stretch, or NoPE that nothing took notice of would change no logits."""
    for name, key in (("llama-window", "attention.sliding_window"), ("granite-nope", "rope.scaling.finetuned")):
        model = TINY_MODELS[name]()
        with_key, without = tmp_path / "with.gguf", tmp_path / "without.gguf"
        write_tiny_model(with_key, model, "F32")
        del model.keys[key]
        write_tiny_model(without, model, "F32")
        assert total_error(reference_of(Weights(with_key), IDS), reference_of(Weights(without), IDS)) > 0.005, name
