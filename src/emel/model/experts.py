"""Mixtures of experts as files describe them, and the feed-forward they stand for (https://arxiv.org/abs/1701.06538).

A router scores the experts of a layer, the best of them are computed, and what they give is summed by weight. Some
models have a shared expert besides, which every token goes through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation
from emel.kernel.sizes import ROW_GROUP
from emel.lazy_dataclasses import dataclass
from emel.model.decoder_tensors import Bias, linear_tensors
from emel.model.errors import ModelError
from emel.model.parameters import non_negative_float, non_negative_int, positive_int
from emel.model.tensors import ExpectedTensor, Role

if TYPE_CHECKING:
    from emel.gguf import Metadata
    from emel.graph.ops import Value
    from emel.model.decoder import Decoder
    from emel.model.geometry import Geometry

MOST_EXPERTS = 1024
# https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py, ExpertGatingFuncType
GATINGS = {1: Gating.SOFTMAX, 2: Gating.SIGMOID, 3: Gating.SOFTMAX_OF_CHOSEN}


@dataclass(frozen=True, slots=True)
class Experts:
    """`n_used` of `n_experts` are chosen for each token; `d_ff` is the width of one."""

    n_experts: int
    n_used: int
    d_ff: int
    d_ff_shared: int  # of the shared expert; 0: there is none
    gating: Gating
    is_normalized: bool  # the weights of those chosen sum up to `scale`
    scale: float
    activation: Activation = Activation.SILU
    alpha: float = 0.0  # of CLAMPED_SWISH
    limit: float = 0.0


def read_experts(
    metadata: Metadata,
    name: str,
    *,
    d_model: int,
    d_ff: int,
    is_normalized: bool,
    d_ff_shared: int = 0,
    gating: Gating = Gating.SOFTMAX,
) -> Experts:
    """From the metadata of architecture `name`; the values given are taken without their keys.

    MetadataError or ModelError name the key.
    """
    n_experts = positive_int(metadata, f"{name}.expert_count", at_most=MOST_EXPERTS)
    width_key = f"{name}.expert_feed_forward_length"
    width = positive_int(metadata, width_key, d_ff)
    # The rows of an expert begin a group of packed ones.
    for what, value in ((f"'{width_key}'", width), (f"'{name}.embedding_length'", d_model)):
        if value % ROW_GROUP:
            raise ModelError(f"{what} is {value}: experts need a multiple of {ROW_GROUP}")
    return Experts(
        n_experts=n_experts,
        n_used=positive_int(metadata, f"{name}.expert_used_count", at_most=n_experts),
        d_ff=width,
        d_ff_shared=non_negative_int(metadata, f"{name}.expert_shared_feed_forward_length", d_ff_shared),
        gating=_gating(metadata, name, gating),
        is_normalized=metadata.get_bool(f"{name}.expert_weights_norm", is_normalized),
        scale=non_negative_float(metadata, f"{name}.expert_weights_scale", 0.0) or 1.0,
    )


def _gating(metadata: Metadata, name: str, default: Gating) -> Gating:
    key = f"{name}.expert_gating_func"
    value = non_negative_int(metadata, key, 0)
    if value and value not in GATINGS:
        raise ModelError(f"metadata {key!r} is {value}: EMEL knows {', '.join(map(str, GATINGS))}")
    return GATINGS.get(value, default)


def expert_tensors(p: Geometry, e: Experts, layer: int, *, bias: Bias = Bias.NONE) -> list[ExpectedTensor]:
    """The router of a layer and its experts, each tensor with all of them, expert after expert."""
    block = f"blk.{layer}."
    tensors = linear_tensors(f"{block}ffn_gate_inp", e.n_experts, p.d_model, bias)
    for name, rows, cols in (
        ("ffn_gate_exps", e.d_ff, p.d_model),
        ("ffn_up_exps", e.d_ff, p.d_model),
        ("ffn_down_exps", p.d_model, e.d_ff),
    ):
        tensors.append(ExpectedTensor(f"{block}{name}.weight", (e.n_experts, rows, cols)))
        if bias is not Bias.NONE:
            is_required = bias is Bias.REQUIRED
            tensors.append(ExpectedTensor(f"{block}{name}.bias", (e.n_experts, rows), is_required, Role.VECTOR))
    return tensors


def shared_expert_tensors(p: Geometry, e: Experts, layer: int) -> list[ExpectedTensor]:
    """The shared expert of a layer, if the model has one."""
    if not e.d_ff_shared:
        return []
    block = f"blk.{layer}."
    return [
        *linear_tensors(f"{block}ffn_gate_shexp", e.d_ff_shared, p.d_model),
        *linear_tensors(f"{block}ffn_up_shexp", e.d_ff_shared, p.d_model),
        *linear_tensors(f"{block}ffn_down_shexp", p.d_model, e.d_ff_shared),
    ]


def mixture(decoder: Decoder, h: Value, block: str, e: Experts, *, choice_bias: str | None = None) -> Value:
    """What the chosen experts of a layer make of h; `choice_bias` names a vector that only the choice heeds."""
    builder, weights = decoder.builder, decoder.weights
    chosen, routing = builder.top_k(
        decoder.linear(h, f"{block}ffn_gate_inp"),
        e.n_used,
        gating=e.gating,
        is_normalized=e.is_normalized,
        scale=e.scale,
        bias=None if choice_bias is None else weights.vector(choice_bias),
    )
    rows = builder.expert_rows(h, routing)
    gate, up = (weights.expert_linear(rows, routing, f"{block}ffn_{each}_exps") for each in ("gate", "up"))
    inner = builder.gated(gate, up, e.activation, alpha=e.alpha, limit=e.limit)
    return builder.expert_sum(weights.expert_linear(inner, routing, f"{block}ffn_down_exps"), routing, chosen)


def shared_expert(decoder: Decoder, h: Value, block: str) -> Value:
    """What the shared expert of a layer makes of h."""
    gate, up = decoder.linear(h, f"{block}ffn_gate_shexp"), decoder.linear(h, f"{block}ffn_up_shexp")
    return decoder.linear(decoder.builder.gated(gate, up), f"{block}ffn_down_shexp")
