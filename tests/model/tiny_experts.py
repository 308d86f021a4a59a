"""Tiny models with experts or short convolutions; see tiny_models.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.tiny_models import D_MODEL, HEAD_NORMS, OUTPUT_NORM, PRE_NORMS, Body, TinyModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

N_EXPERTS = 8
N_USED = 3
D_EXPERT = 256
D_SHARED = 512
N_TAPS = 3


def expert_keys(**more: object) -> dict[str, object]:
    """Metadata of a mixture of experts."""
    keys: dict[str, object] = {
        "expert_count": N_EXPERTS,
        "expert_used_count": N_USED,
        "expert_feed_forward_length": D_EXPERT,
    }
    return keys | more


def with_experts(matrices: dict[str, tuple[int, ...]], layers: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Experts instead of the feed-forwards of some layers; their routers come from `routers`."""
    shapes = dict(matrices)
    for layer in layers:
        block = f"blk.{layer}."
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            del shapes[f"{block}{name}.weight"]
        shapes |= {
            f"{block}ffn_gate_exps.weight": (N_EXPERTS, D_EXPERT, D_MODEL),
            f"{block}ffn_up_exps.weight": (N_EXPERTS, D_EXPERT, D_MODEL),
            f"{block}ffn_down_exps.weight": (N_EXPERTS, D_MODEL, D_EXPERT),
        }
    return shapes


def routers(layers: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """The routers of some layers: float32 in every file."""
    return {f"blk.{layer}.ffn_gate_inp.weight": (N_EXPERTS, D_MODEL) for layer in layers}


def shared_experts(n_layers: int) -> dict[str, tuple[int, ...]]:
    """A shared expert in every layer."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(n_layers):
        block = f"blk.{layer}."
        shapes |= {
            f"{block}ffn_gate_shexp.weight": (D_SHARED, D_MODEL),
            f"{block}ffn_up_shexp.weight": (D_SHARED, D_MODEL),
            f"{block}ffn_down_shexp.weight": (D_MODEL, D_SHARED),
        }
    return shapes


def tiny_mixtral() -> TinyModel:
    """Llama with experts as wide as its feed-forward would be."""
    body = Body()
    keys = body.keys(feed_forward_length=D_EXPERT) | expert_keys()
    del keys["expert_feed_forward_length"]
    matrices = with_experts(body.matrices(is_tied=False), range(body.n_layers))
    return TinyModel("llama", keys, matrices, OUTPUT_NORM | body.norms(*PRE_NORMS), plain=routers(range(body.n_layers)))


def tiny_qwen2moe() -> TinyModel:
    """Weights that do not sum up to 1; a gated shared expert."""
    body = Body(rope_base=1e6)
    matrices = with_experts(body.matrices(is_tied=False), range(body.n_layers)) | shared_experts(body.n_layers)
    gates = {f"blk.{layer}.ffn_gate_inp_shexp.weight": (1, D_MODEL) for layer in range(body.n_layers)}
    plain = gates | routers(range(body.n_layers))
    biases = body.biases(attn_q=256, attn_k=128, attn_v=128)
    keys = body.keys() | expert_keys(expert_shared_feed_forward_length=D_SHARED)
    return TinyModel("qwen2moe", keys, matrices, OUTPUT_NORM | body.norms(*PRE_NORMS) | biases, plain=plain)


def tiny_qwen3moe() -> TinyModel:
    """Norms of heads, no shared expert."""
    body = Body(head_dim=128, rope_base=1e6)
    vectors = OUTPUT_NORM | body.norms(*PRE_NORMS) | body.norms(*HEAD_NORMS, width=128)
    matrices = with_experts(body.matrices(is_tied=False), range(body.n_layers))
    return TinyModel("qwen3moe", body.keys() | expert_keys(), matrices, vectors, plain=routers(range(body.n_layers)))


def tiny_granitemoe() -> TinyModel:
    """Multipliers, a shared expert without a gate."""
    body = Body()
    keys = body.keys(
        feed_forward_length=D_EXPERT,
        embedding_scale=12.0,
        attention__scale=0.015625,
        residual_scale=0.22,
        logit_scale=6.0,
    ) | expert_keys(expert_shared_feed_forward_length=D_SHARED)
    del keys["expert_feed_forward_length"]
    matrices = with_experts(body.matrices(), range(body.n_layers)) | shared_experts(body.n_layers)
    plain = routers(range(body.n_layers))
    return TinyModel("granitemoe", keys, matrices, OUTPUT_NORM | body.norms(*PRE_NORMS), plain=plain)


def tiny_olmoe() -> TinyModel:
    """Norms over all queries and keys; as many key heads as query heads."""
    body = Body(n_kv_heads=4)
    norms = body.norms("attn_q_norm", "attn_k_norm", width=256)
    keys = body.keys(feed_forward_length=D_EXPERT) | expert_keys()
    del keys["expert_feed_forward_length"]
    matrices = with_experts(body.matrices(is_tied=False), range(body.n_layers))
    vectors = OUTPUT_NORM | body.norms(*PRE_NORMS) | norms
    return TinyModel("olmoe", keys, matrices, vectors, plain=routers(range(body.n_layers)))


def tiny_gpt_oss() -> TinyModel:
    """Four layers, two of them with a window; sinks, biases, YaRN from 32 tokens to 128."""
    body = Body(n_layers=4, rope_base=150000.0)
    keys = body.keys(
        attention__sliding_window=16,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32,
    )
    matrices = with_experts(body.matrices(is_tied=False), range(body.n_layers))
    biases = body.biases(attn_q=256, attn_k=128, attn_v=128, attn_output=D_MODEL, ffn_gate_inp=N_EXPERTS)
    sinks = {f"blk.{layer}.attn_sinks.weight": (4, 0.5) for layer in range(body.n_layers)}
    vectors = OUTPUT_NORM | body.norms("attn_norm", "post_attention_norm") | biases | sinks
    expert_biases = {
        f"blk.{layer}.ffn_{name}_exps.bias": (N_EXPERTS, n)
        for layer in range(body.n_layers)
        for name, n in (("gate", D_EXPERT), ("up", D_EXPERT), ("down", D_MODEL))
    }
    return TinyModel(
        "gpt-oss", keys | expert_keys(), matrices, vectors, plain=expert_biases | routers(range(body.n_layers))
    )


def _hybrid(
    body: Body, architecture: str, keys: dict[str, object], matrices: dict[str, tuple[int, ...]], attends: list[int]
) -> TinyModel:
    """A model whose layers are convolutions but for those that attend."""
    vectors = {"token_embd_norm.weight": (D_MODEL, 1.0)} | body.norms(*PRE_NORMS)
    kernels: dict[str, tuple[int, ...]] = {}
    for layer in range(body.n_layers):
        block = f"blk.{layer}."
        if layer in attends:
            vectors |= {f"{block}{name}.weight": (body.head_dim, 1.0) for name in HEAD_NORMS}
            continue
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            del matrices[f"{block}{name}.weight"]
        matrices |= {
            f"{block}shortconv.in_proj.weight": (3 * D_MODEL, D_MODEL),
            f"{block}shortconv.out_proj.weight": (D_MODEL, D_MODEL),
        }
        kernels[f"{block}shortconv.conv.weight"] = (D_MODEL, N_TAPS)
    heads = [body.n_kv_heads if layer in attends else 0 for layer in range(body.n_layers)]
    keys |= {"attention.head_count_kv": heads, "shortconv.l_cache": N_TAPS}
    return TinyModel(architecture, keys, matrices, vectors, plain=kernels)


def tiny_lfm2() -> TinyModel:
    """Convolution, attention, convolution, attention."""
    body = Body(n_layers=4, rope_base=1e6)
    return _hybrid(body, "lfm2", body.keys(), body.matrices(), [1, 3])


def tiny_lfm2_convolution_last() -> TinyModel:
    """Attention first; the last layer, of whose rows only some are wanted, is a convolution."""
    body = Body(rope_base=1e6)
    return _hybrid(body, "lfm2", body.keys(), body.matrices(), [0])


def tiny_lfm2moe() -> TinyModel:
    """A dense layer, then experts chosen with a bias."""
    body = Body(n_layers=4, rope_base=1e6)
    keys = body.keys() | expert_keys(leading_dense_block_count=1, expert_gating_func=2)
    matrices = with_experts(body.matrices(), range(1, body.n_layers))
    model = _hybrid(body, "lfm2moe", keys, matrices, [1, 3])
    biases = {f"blk.{layer}.exp_probs_b.bias": (N_EXPERTS, 0.0) for layer in range(1, body.n_layers)}
    plain = model.plain | routers(range(1, body.n_layers))
    return TinyModel("lfm2moe", keys, model.matrices, model.vectors | biases, plain=plain)


EXPERT_MODELS: dict[str, Callable[[], TinyModel]] = {
    "mixtral": tiny_mixtral,
    "qwen2moe": tiny_qwen2moe,
    "qwen3moe": tiny_qwen3moe,
    "granitemoe": tiny_granitemoe,
    "olmoe": tiny_olmoe,
    "gpt-oss": tiny_gpt_oss,
}
HYBRID_MODELS: dict[str, Callable[[], TinyModel]] = {
    "lfm2": tiny_lfm2,
    "lfm2-convolution-last": tiny_lfm2_convolution_last,
    "lfm2moe": tiny_lfm2moe,
}
