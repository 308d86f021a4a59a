"""config.json as GGUF's metadata, against what published GGUF files of these models have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from emel.convert.errors import ConvertError
from emel.convert.hf_families import find_family
from emel.convert.hf_parameters import keys_of
from emel.convert.hf_rope import rope_factors

LLAMA_3_1: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}


def keys(config: dict[str, Any]) -> dict[str, Any]:
    return keys_of(config, find_family(config), 14336)


def test_llama_3_1_has_factors_from_1_to_8() -> None:
    factors = rope_factors(LLAMA_3_1)["rope_freqs.weight"]
    assert factors.shape == (64,)
    assert factors[:29].tolist() == [1.0] * 29
    assert factors[35:].tolist() == [8.0] * 29
    assert np.all(np.diff(factors[28:36]) > 0)
    wave = 2 * math.pi * 500000.0 ** (2 * 32 / 128)
    blend = (8192 / wave - 1) / 3
    assert factors[32] == pytest.approx(1 / ((1 - blend) / 8 + blend))


def test_llama_3_1_has_the_usual_keys_and_no_scaling() -> None:
    found = keys(LLAMA_3_1)
    assert found["attention.key_length"] == 128
    assert found["rope.dimension_count"] == 128
    assert (found["rope.freq_base"], found["attention.head_count_kv"]) == (500000.0, 8)
    assert not any(key.startswith("rope.scaling") for key in found)


def test_phi_3_long_context_has_both_factors_and_its_magnitude() -> None:
    config = LLAMA_3_1 | {
        "architectures": ["Phi3ForCausalLM"],
        "original_max_position_embeddings": 4096,
        "sliding_window": 262144,
        "rope_scaling": {"type": "su", "long_factor": [2.0] * 48, "short_factor": [1.0] * 48},
    }
    found = keys(config)
    assert found["rope.scaling.attn_factor"] == pytest.approx(1.1902380714)
    assert found["rope.scaling.original_context_length"] == 4096
    assert found["attention.sliding_window"] == 262144
    assert {name: values.shape for name, values in rope_factors(config).items()} == {
        "rope_factors_long.weight": (48,),
        "rope_factors_short.weight": (48,),
    }


def test_gemma_3_tells_both_bases_however_they_are_written() -> None:
    gemma = {key: value for key, value in LLAMA_3_1.items() if key not in ("rope_theta", "rope_scaling")}
    gemma |= {"architectures": ["Gemma3ForCausalLM"], "head_dim": 256, "sliding_window": 512}
    old = gemma | {"rope_theta": 1e6, "rope_local_base_freq": 20000.0, "sliding_window_pattern": 6}
    types = ["sliding_attention", "full_attention"] * 16
    ropes = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 20000.0}}
    new = gemma | {"rope_parameters": ropes, "layer_types": types}
    for config, pattern in ((old, 6), (new, [True, False] * 16)):
        found = keys(config)
        assert (found["rope.freq_base"], found["rope.freq_base_swa"]) == (1e6, 20000.0)
        assert found["attention.sliding_window_pattern"] == pattern


@pytest.mark.parametrize(("key", "wanted"), [("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)])
def test_gpt_oss_with_another_activation_is_refused(key: str, wanted: float) -> None:
    config = {each: value for each, value in LLAMA_3_1.items() if each != "rope_scaling"}
    config |= {"architectures": ["GptOssForCausalLM"], "sliding_window": 128, "intermediate_size": 64}
    assert keys(config | {key: wanted})["expert_feed_forward_length"] == 64
    with pytest.raises(ConvertError, match=rf"^config.json has {key} 5.0: only {wanted} is supported$"):
        keys(config | {key: 5.0})


def test_yarn_tells_all_that_it_was_given() -> None:
    """GGUF's factor multiplies YaRN's own, 0.1 ln(factor) + 1, which Hugging Face's replaces."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2}
    found = keys(LLAMA_3_1 | {"rope_scaling": scaling, "original_max_position_embeddings": 32768})
    assert found["rope.scaling.original_context_length"] == 32768
    assert (found["rope.scaling.yarn_beta_fast"], found["rope.scaling.yarn_beta_slow"]) == (16.0, 2.0)
    assert found["rope.scaling.attn_factor"] == pytest.approx(1.5 / (0.1 * math.log(4.0) + 1.0))


@pytest.mark.parametrize(
    "changes", [{"partial_rotary_factor": 0.75}, {"rope_parameters": {"partial_rotary_factor": 0.75}}]
)
def test_some_dimensions_are_not_turned_wherever_it_is_written(changes: dict[str, Any]) -> None:
    config = {key: value for key, value in LLAMA_3_1.items() if key != "rope_scaling"} | changes
    assert keys(config)["rope.dimension_count"] == 96
