"""Which tensor gets which type; the expectations are what llama.cpp's quantiser made of files of these shapes."""

from __future__ import annotations

import pytest

from emel.convert.mixes import MIXES, ModelShape, choose_types, find_mix, is_quantizable
from emel.gguf import TensorInfo
from emel.tensor.types import TensorType

T = TensorType


def info(name: str, *shape: int, type_: TensorType = T.F16) -> TensorInfo:
    return TensorInfo(name, shape, type_, 0, 0)


def model(n_layers: int, cols: int = 256, *, tied: bool = False) -> dict[str, TensorInfo]:
    names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    layers = sorted(range(n_layers), key=str)  # as files have them: 0, 1, 10, 11, 2
    tensors = [info(f"blk.{layer}.{name}.weight", 64, cols) for layer in layers for name in names]
    outer = [info("token_embd.weight", 100, cols)] + ([] if tied else [info("output.weight", 100, cols)])
    return {each.name: each for each in [*outer, *tensors]}


def types_of(mix: str, tensors: dict[str, TensorInfo], **shape: object) -> dict[str, TensorType]:
    whole = {"architecture": "llama", "n_layers": 16, "n_experts": 0, "is_grouped": True, **shape}
    return choose_types(tensors, MIXES[mix], ModelShape(**whole))  # type: ignore[arg-type]


def layers_with(types: dict[str, TensorType], name: str, type_: TensorType) -> list[int]:
    return sorted(int(key.split(".")[1]) for key, each in types.items() if f".{name}." in key and each is type_)


@pytest.mark.parametrize(("mix", "base"), [("Q4_K_M", T.Q4_K), ("Q5_K_M", T.Q5_K)])
def test_medium_mixes_raise_values_and_downs_of_some_layers(mix: str, base: TensorType) -> None:
    types = types_of(mix, model(16))
    raised = [0, 1, 4, 7, 10, 13, 14, 15]
    for name in ("attn_v", "ffn_down"):
        assert layers_with(types, name, T.Q6_K) == raised
        assert layers_with(types, name, base) == sorted(set(range(16)) - set(raised))
    assert len(layers_with(types, "attn_q", base)) == 16
    assert types["output.weight"] is T.Q6_K
    assert types["token_embd.weight"] is base


def test_the_small_mix_raises_the_first_layers_in_their_true_order() -> None:
    types = types_of("Q4_K_S", model(16))
    assert layers_with(types, "attn_v", T.Q5_K) == [0, 1, 2, 3]
    assert layers_with(types, "ffn_down", T.Q5_K) == [0, 1]
    assert types_of("Q5_K_S", model(16))["blk.0.attn_v.weight"] is T.Q5_K


def test_a_tied_embedding_is_an_output_matrix() -> None:
    assert types_of("Q4_0", model(2, tied=True))["token_embd.weight"] is T.Q6_K
    assert types_of("Q8_0", model(2, tied=True))["token_embd.weight"] is T.Q8_0
    assert types_of("Q4_0", model(2))["token_embd.weight"] is T.Q4_0


def test_rows_that_are_no_super_blocks_get_the_next_best() -> None:
    """576, as SmolLM2 has it."""
    types = types_of("Q4_K_M", model(16, 576, tied=True))
    assert types["blk.2.attn_q.weight"] is T.Q5_0
    assert types["blk.0.attn_v.weight"] is T.Q8_0
    assert types["token_embd.weight"] is T.Q8_0
    assert types_of("Q5_K_S", model(16, 576))["blk.0.attn_q.weight"] is T.Q5_1
    assert types_of("Q4_0", model(16, 576))["output.weight"] is T.Q8_0
    assert types_of("Q4_0", model(2, 40))["blk.0.attn_q.weight"] is T.F16


def test_eight_experts_give_more_bits_to_attention() -> None:
    types = types_of("Q4_K_M", model(16), n_experts=8)
    assert {types["blk.3.attn_v.weight"], types["blk.3.attn_k.weight"]} == {T.Q8_0}
    assert types["blk.3.attn_output.weight"] is T.Q5_K
    assert types["blk.3.attn_q.weight"] is T.Q4_K


def test_eighty_grouped_layers_give_more_bits_to_values() -> None:
    tensors = model(16)
    assert types_of("Q4_K_M", tensors, n_layers=80)["blk.2.attn_v.weight"] is T.Q5_K
    assert types_of("Q4_K_M", tensors, n_layers=80, is_grouped=False)["blk.2.attn_v.weight"] is T.Q4_K


@pytest.mark.parametrize("mix", MIXES)
def test_vectors_norms_routers_and_convolutions_keep_their_types(mix: str) -> None:
    kept = [
        info("blk.0.attn_norm.weight", 256, type_=T.F32),
        info("blk.0.attn_q.bias", 256, type_=T.F32),
        info("blk.0.ffn_gate_inp.weight", 8, 256, type_=T.F32),
        info("blk.0.shortconv.conv.weight", 256, 3, type_=T.F32),
        info("position_embd.weight", 512, 256, type_=T.F32),
        info("token_types.weight", 2, 256, type_=T.F32),
        info("blk.0.attn_q_norm.weight", 2, 256, type_=T.F32),
    ]
    types = types_of(mix, {each.name: each for each in kept})
    assert set(types.values()) == {T.F32}
    assert not any(map(is_quantizable, kept))


def test_unquantised_kinds_turn_every_matrix_into_theirs() -> None:
    assert set(types_of("BF16", model(2)).values()) == {T.BF16}


def test_mixes_are_found_in_any_case_and_by_their_short_names() -> None:
    assert find_mix("q4_k") is MIXES["Q4_K_M"]
    assert find_mix("Q5_K") is MIXES["Q5_K_M"]
    assert find_mix("bf16") is MIXES["BF16"]
    assert find_mix("Q9") is None
