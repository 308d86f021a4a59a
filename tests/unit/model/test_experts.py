from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation
from emel.model.errors import ModelError
from unit.model.described import EXPERT_KEYS, parameters_of, shapes_of

if TYPE_CHECKING:
    from pathlib import Path

MIXTURES = {
    "llama": (Gating.SOFTMAX, True),
    "qwen2moe": (Gating.SOFTMAX, False),
    "qwen3moe": (Gating.SOFTMAX, True),
    "granitemoe": (Gating.SOFTMAX, True),
    "olmoe": (Gating.SOFTMAX, False),
    "gpt-oss": (Gating.SOFTMAX_OF_CHOSEN, False),
    "lfm2moe": (Gating.SIGMOID, True),
}


@pytest.mark.parametrize("architecture", MIXTURES)
def test_architectures_weigh_experts_as_their_papers_say(tmp_path: Path, architecture: str) -> None:
    experts = parameters_of(tmp_path, architecture, **EXPERT_KEYS).experts
    assert (experts.n_experts, experts.n_used, experts.d_ff, experts.scale) == (8, 2, 32, 1.0)
    assert (experts.gating, experts.is_normalized) == MIXTURES[architecture]
    clamped = (Activation.CLAMPED_SWISH, 1.702, 7.0)
    plain = (Activation.SILU, 0.0, 0.0)
    assert (experts.activation, experts.alpha, experts.limit) == (clamped if architecture == "gpt-oss" else plain)


@pytest.mark.parametrize("architecture", MIXTURES)
def test_experts_are_expected_all_in_one_tensor(tmp_path: Path, architecture: str) -> None:
    shapes = shapes_of(architecture, parameters_of(tmp_path, architecture, **EXPERT_KEYS))
    assert shapes["blk.2.ffn_gate_inp.weight"] == (8, 64)
    assert shapes["blk.2.ffn_gate_exps.weight"] == shapes["blk.2.ffn_up_exps.weight"] == (8, 32, 64)
    assert shapes["blk.2.ffn_down_exps.weight"] == (8, 64, 32)
    assert "blk.2.ffn_gate.weight" not in shapes
    assert ("blk.2.ffn_down_exps.bias" in shapes) == (architecture == "gpt-oss")


def test_a_file_may_say_otherwise(tmp_path: Path) -> None:
    keys = EXPERT_KEYS | {"expert_gating_func": 2, "expert_weights_norm": False, "expert_weights_scale": 2.5}
    experts = parameters_of(tmp_path, "qwen3moe", **keys).experts
    assert (experts.gating, experts.is_normalized, experts.scale) == (Gating.SIGMOID, False, 2.5)


def test_qwen2moe_shares_the_width_of_the_feed_forward_without_keys(tmp_path: Path) -> None:
    keys = EXPERT_KEYS | {"expert_feed_forward_length": None}
    parameters = parameters_of(tmp_path, "qwen2moe", **keys)
    assert (parameters.experts.d_ff, parameters.experts.d_ff_shared) == (48, 96)
    shapes = shapes_of("qwen2moe", parameters)
    assert shapes["blk.0.ffn_up_shexp.weight"] == (96, 64)
    assert shapes["blk.0.ffn_gate_inp_shexp.weight"] == (1, 64)


def test_granitemoe_has_a_shared_expert_where_a_file_has_its_width(tmp_path: Path) -> None:
    assert "blk.0.ffn_up_shexp.weight" not in shapes_of(
        "granitemoe", parameters_of(tmp_path, "granitemoe", **EXPERT_KEYS)
    )
    keys = EXPERT_KEYS | {"expert_shared_feed_forward_length": 80}
    assert shapes_of("granitemoe", parameters_of(tmp_path, "granitemoe", **keys))["blk.0.ffn_up_shexp.weight"] == (
        80,
        64,
    )


def test_gpt_oss_slides_in_every_second_layer_from_the_first_on(tmp_path: Path) -> None:
    parameters = parameters_of(tmp_path, "gpt-oss", **EXPERT_KEYS, attention__sliding_window=16)
    assert parameters.windows == (16, 0, 16)
    assert parameters.rope.keep_fractions


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_count": 0}, "'qwen3moe.expert_count' is 0: 1 to 1024 are allowed"),
        ({"expert_count": 1025}, "'qwen3moe.expert_count' is 1025"),
        ({"expert_used_count": 9}, "'qwen3moe.expert_used_count' is 9: 1 to 8 are allowed"),
        (
            {"expert_feed_forward_length": 40},
            "'qwen3moe.expert_feed_forward_length' is 40: experts need a multiple of 16",
        ),
        ({"embedding_length": 72}, "'qwen3moe.embedding_length' is 72: experts need a multiple of 16"),
        ({"expert_gating_func": 4}, "'qwen3moe.expert_gating_func' is 4: EMEL knows 1, 2, 3"),
        ({"expert_shared_feed_forward_length": 2**31}, "expert_shared_feed_forward_length"),
    ],
)
def test_experts_that_cannot_be_are_refused(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parameters_of(tmp_path, "qwen3moe", **EXPERT_KEYS | keys)
