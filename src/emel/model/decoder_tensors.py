"""The tensors that decoders have in common, by GGUF's names."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.model.rope import factor_tensors
from emel.model.tensors import ExpectedTensor, matrix, vector

if TYPE_CHECKING:
    from emel.model.geometry import Geometry


class Bias(Enum):
    """Whether matrices have biases."""

    NONE = 0
    OPTIONAL = 1
    REQUIRED = 2


def outer_tensors(p: Geometry) -> list[ExpectedTensor]:
    """Embedding, last norm, the output matrix where it is not the embedding, and RoPE factors."""
    return [
        matrix("token_embd.weight", p.n_vocab, p.d_model),
        vector("output_norm.weight", p.d_model),
        matrix("output.weight", p.n_vocab, p.d_model, is_required=False),
        *factor_tensors(p.rope),
    ]


def norm_tensors(p: Geometry, layer: int, *names: str) -> list[ExpectedTensor]:
    """Norms of the residual stream's width."""
    return [vector(f"blk.{layer}.{name}.weight", p.d_model) for name in names]


def head_norm_tensors(p: Geometry, layer: int) -> list[ExpectedTensor]:
    """Norms of query and key heads."""
    return [vector(f"blk.{layer}.{name}.weight", p.head_dim) for name in ("attn_q_norm", "attn_k_norm")]


def attention_tensors(
    p: Geometry, layer: int, *, bias: Bias = Bias.NONE, output_bias: Bias = Bias.NONE
) -> list[ExpectedTensor]:
    """Queries, keys, values (with `bias`) and what joins the heads (with `output_bias`)."""
    heads = p.heads_of(layer)
    block = f"blk.{layer}."
    return [
        *linear_tensors(f"{block}attn_q", heads.q_width, p.d_model, bias),
        *linear_tensors(f"{block}attn_k", heads.kv_width, p.d_model, bias),
        *linear_tensors(f"{block}attn_v", heads.kv_width, p.d_model, bias),
        *linear_tensors(f"{block}attn_output", p.d_model, heads.q_width, output_bias),
    ]


def feed_forward_tensors(p: Geometry, layer: int, *, bias: Bias = Bias.NONE) -> list[ExpectedTensor]:
    """A gated feed-forward."""
    block, d_ff = f"blk.{layer}.", p.d_ff[layer]
    return [
        *linear_tensors(f"{block}ffn_gate", d_ff, p.d_model, bias),
        *linear_tensors(f"{block}ffn_up", d_ff, p.d_model, bias),
        *linear_tensors(f"{block}ffn_down", p.d_model, d_ff, bias),
    ]


def linear_tensors(name: str, rows: int, cols: int, bias: Bias = Bias.NONE) -> list[ExpectedTensor]:
    """A matrix and its bias."""
    weight = matrix(f"{name}.weight", rows, cols)
    if bias is Bias.NONE:
        return [weight]
    return [weight, vector(f"{name}.bias", rows, is_required=bias is Bias.REQUIRED)]
