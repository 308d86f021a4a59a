"""Hyperparameters that differ between architectures, read from metadata alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from emel.gguf import open_gguf
from emel.kernel.rope import long_rope_magnitude, rope_frequencies, yarn_frequencies
from emel.model.errors import ModelError
from emel.model.loader import describe_file
from emel.model.rope import Rope, Scaling
from model.tiny_models import TINY_MODELS, write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path


def parameters_of(tmp_path: Path, name: str, **keys: object) -> Any:
    """Those of a tiny model with keys changed, or with None left out; `a__b` stands for `a.b`."""
    model = TINY_MODELS[name]()
    changed = model.keys | {key.replace("__", "."): value for key, value in keys.items()}
    path = tmp_path / "model.gguf"
    kept = {key: value for key, value in changed.items() if value is not None}
    write_tiny_model(path, replace(model, keys=kept), "Q8_0")
    with open_gguf(path) as file:
        return describe_file(file).parameters


def test_gemma2_slides_every_other_layer_from_the_first(tmp_path: Path) -> None:
    assert parameters_of(tmp_path, "gemma2").windows == (16, 0, 16, 0)
    assert parameters_of(tmp_path, "gemma2", attention__sliding_window=None).windows == (4096, 0, 4096, 0)


def test_gemma3_slides_five_of_six_layers(tmp_path: Path) -> None:
    p = parameters_of(tmp_path, "gemma3")
    assert p.windows == (16, 16, 16, 16, 16, 0)
    assert (p.rope.base, p.rope.factor, p.local_rope.base, p.local_rope.factor) == (1e6, 8.0, 1e4, 1.0)
    assert parameters_of(tmp_path, "gemma3", attention__sliding_window=None).windows == (0,) * 6


def test_windows_follow_the_files_pattern(tmp_path: Path) -> None:
    assert parameters_of(tmp_path, "gemma3", attention__sliding_window_pattern=2).windows == (16, 0) * 3
    pattern = [False, True, True, False, False, True]
    assert parameters_of(tmp_path, "gemma3", attention__sliding_window_pattern=pattern).windows == (0, 16, 16, 0, 0, 16)
    with pytest.raises(ModelError, match=r"'gemma3\.attention\.sliding_window_pattern' has 2 values: each of the 6"):
        parameters_of(tmp_path, "gemma3", attention__sliding_window_pattern=[True, False])


@pytest.mark.parametrize(("name", "n_layers"), [("gemma2", 46), ("gemma3", 62)])
def test_gemma_27b_divides_scores_by_the_width_of_the_model(tmp_path: Path, name: str, n_layers: int) -> None:
    assert parameters_of(tmp_path, name, block_count=n_layers).score_scale == (256 // 4) ** -0.5
    head_dim = TINY_MODELS[name]().keys["attention.key_length"]
    assert isinstance(head_dim, int)
    assert parameters_of(tmp_path, name).score_scale == head_dim**-0.5


def test_granite_multipliers_have_the_usual_values_where_files_have_none(tmp_path: Path) -> None:
    times = parameters_of(tmp_path, "granite").multipliers
    assert (times.embedding, times.scores, times.logits) == (12.0, 0.015625, 0.125)
    assert math.isclose(times.residual, 0.22, rel_tol=1e-6)
    names = {"embedding_scale": None, "attention__scale": None, "residual_scale": 0.0}
    times = parameters_of(tmp_path, "granite", **names).multipliers
    assert (times.embedding, times.scores, times.residual) == (1.0, 0.125, 1.0)
    with pytest.raises(ValueError, match=r"metadata 'granite\.logit_scale' is missing"):
        parameters_of(tmp_path, "granite", logit_scale=None)


def test_olmo3_stretches_only_what_sees_everything(tmp_path: Path) -> None:
    p = parameters_of(tmp_path, "olmo2-window")
    assert p.windows == (16, 16, 16, 0)
    assert (p.rope.scaling, p.local_rope.scaling) == (Scaling.YARN, Scaling.NONE)
    assert parameters_of(tmp_path, "olmo2").windows == (0, 0, 0)


def test_layers_may_have_numbers_of_their_own(tmp_path: Path) -> None:
    p = parameters_of(tmp_path, "llama-layers")
    assert (p.n_kv_heads, p.d_ff, p.heads.n_kv_heads) == ((2, 1, 4), (512, 256, 512), 4)
    for values, message in (
        ([2, 1], "has 2 values: one for each of the 3 layers is needed"),
        ([2, 3, 4], "is 3: it must divide the 4 query heads"),
        ([2, 0, 4], "is 0: 1 to 2147483647 are allowed"),
    ):
        with pytest.raises(ModelError, match=rf"'llama\.attention\.head_count_kv' {message}"):
            parameters_of(tmp_path, "llama-layers", attention__head_count_kv=values)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_caps_must_be_finite(tmp_path: Path, value: float) -> None:
    with pytest.raises(ModelError, match=r"'gemma2\.final_logit_softcapping' is .*: it must be finite, 0 or more"):
        parameters_of(tmp_path, "gemma2", final_logit_softcapping=value)


def test_long_rope_magnitude_is_the_files_or_that_of_the_paper(tmp_path: Path) -> None:
    assert math.isclose(parameters_of(tmp_path, "phi3").rope.magnitude, 1.19, rel_tol=1e-6)
    keys: dict[str, object] = {"rope__scaling__attn_factor": None, "rope__scaling__type": "longrope"}
    assert parameters_of(tmp_path, "phi3", **keys).rope.magnitude == long_rope_magnitude(256 / 64, 64)


def test_yarn_keys_reach_the_frequencies(tmp_path: Path) -> None:
    keys: dict[str, object] = {
        "rope__scaling__yarn_beta_fast": 16.0,
        "rope__scaling__yarn_beta_slow": 2.0,
        "rope__scaling__original_context_length": 2048,
    }
    rope: Rope = parameters_of(tmp_path, "qwen2-yarn", rope__scaling__attn_factor=0.5, **keys).rope
    frequencies, magnitude = yarn_frequencies(1e4, 64, factor=4.0, original_context=2048, beta_fast=16.0, beta_slow=2.0)
    assert rope.frequencies() == frequencies
    assert rope.magnitude == 0.5 * magnitude
    assert rope.frequencies() != replace(rope, beta_fast=32.0).frequencies()


def test_linear_scaling_divides_all_frequencies() -> None:
    rope = Rope(n_rot=8, base=1e4, original_context=64, scaling=Scaling.LINEAR, factor=4.0)
    plain = rope_frequencies(1e4, 8)
    assert rope.frequencies().tolist() == [each / 4 for each in plain]
    assert rope.frequencies([1.0, 2.0, 4.0, 8.0]).tolist() == [
        each / (factor * 4) for each, factor in zip(plain, (1.0, 2.0, 4.0, 8.0), strict=True)
    ]


def test_joined_tensors_of_a_wrong_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_qkv\.weight' has shape \(512, 256\): .* \(768, 256\)"):
        parameters_of(tmp_path, "phi3", attention__head_count_kv=4)
    with pytest.raises(ModelError, match=r"'blk\.0\.ffn_up\.weight' has shape \(1024, 256\): .* asks for \(512, 256\)"):
        parameters_of(tmp_path, "phi3", feed_forward_length=256)
