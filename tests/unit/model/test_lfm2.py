from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.state_ops import StateGeometry
from emel.model.errors import ModelError
from unit.model.described import EXPERT_KEYS, parameters_of, shapes_of

if TYPE_CHECKING:
    from pathlib import Path

HYBRID = {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 4}


@pytest.mark.parametrize("architecture", ["lfm2", "lfm2moe"])
def test_layers_without_key_heads_are_convolutions_with_a_state(tmp_path: Path, architecture: str) -> None:
    parameters = parameters_of(tmp_path, architecture, **EXPERT_KEYS | HYBRID)
    assert (parameters.n_kv_layers, parameters.heads.n_kv_heads) == (1, 2)
    assert parameters.state == StateGeometry(n_layers=2, width=64, n_past=3)
    shapes = shapes_of(architecture, parameters)
    assert shapes["blk.0.shortconv.conv.weight"] == (64, 4)
    assert shapes["blk.0.shortconv.in_proj.weight"] == (192, 64)
    assert shapes["blk.1.attn_k.weight"] == (64, 64)
    assert "blk.1.shortconv.conv.weight" not in shapes
    assert "blk.0.attn_k.weight" not in shapes
    assert "token_embd_norm.weight" in shapes


def test_a_model_of_attention_alone_has_no_state(tmp_path: Path) -> None:
    assert parameters_of(tmp_path, "lfm2", **HYBRID | {"attention.head_count_kv": 1}).state is None


def test_a_state_is_a_whole_number_of_cache_lines(tmp_path: Path) -> None:
    keys = HYBRID | {"embedding_length": 40, "attention.head_count": 1, "attention.head_count_kv": [0, 1, 0]}
    state = parameters_of(tmp_path, "lfm2", **keys | {"rope.dimension_count": 40}).state
    assert state is not None
    assert (state.n_kept * 40, state.layer_bytes, state.n_bytes) == (760, 768 * 4, 2 * 768 * 4)


def test_the_first_layers_of_lfm2moe_are_dense(tmp_path: Path) -> None:
    shapes = shapes_of(
        "lfm2moe", parameters_of(tmp_path, "lfm2moe", **EXPERT_KEYS | HYBRID, leading_dense_block_count=2)
    )
    assert shapes["blk.1.ffn_up.weight"] == (96, 64)
    assert shapes["blk.2.ffn_up_exps.weight"] == (8, 32, 64)
    assert shapes["blk.2.exp_probs_b.bias"] == (8,)
    assert "blk.1.exp_probs_b.bias" not in shapes


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"shortconv.l_cache": 17}, "'lfm2.shortconv.l_cache' is 17: 1 to 16 are allowed"),
        ({"attention.head_count_kv": [0, 0, 0]}, "'lfm2.attention.head_count_kv' is 0 for every layer"),
        (
            {"attention.head_count_kv": [0, 2]},
            "'lfm2.attention.head_count_kv' has 2 values: one for each of the 3 layers",
        ),
    ],
)
def test_hybrids_that_cannot_be_are_refused(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parameters_of(tmp_path, "lfm2", **HYBRID | keys)
