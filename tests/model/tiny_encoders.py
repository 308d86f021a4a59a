"""Tiny encoders; see tiny_models.py. Their vocabulary is one of bytes: what is tested takes token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.tiny_models import ALL_NORMS, D_FF, D_MODEL, HEAD_NORMS, N_CTX, OUTPUT_NORM, Body, TinyModel

if TYPE_CHECKING:
    from collections.abc import Callable

N_TYPES = 2
MEAN, CLS, LAST = 1, 2, 3  # pooling_type


def _encoder_keys(body: Body, **more: object) -> dict[str, object]:
    keys = body.keys(attention__layer_norm_epsilon=1e-12, attention__causal=False, pooling_type=MEAN)
    keys["tokenizer.ggml.token_type_count"] = N_TYPES
    del keys["attention.layer_norm_rms_epsilon"]
    return keys | more


def _layer_norms(body: Body) -> dict[str, tuple[int, float]]:
    names = ["token_embd_norm"]
    for layer in range(body.n_layers):
        names += [f"blk.{layer}.attn_output_norm", f"blk.{layer}.layer_output_norm"]
    return {f"{name}.{part}": (D_MODEL, around) for name in names for part, around in (("weight", 1.0), ("bias", 0.0))}


def tiny_bert() -> TinyModel:
    """Positions, types, biases everywhere; as many key heads as query heads."""
    body = Body(n_kv_heads=4)
    keys = _encoder_keys(body)
    matrices = {name: shape for name, shape in body.matrices().items() if "ffn_gate" not in name}
    biases = body.biases(attn_q=256, attn_k=256, attn_v=256, attn_output=D_MODEL, ffn_up=D_FF, ffn_down=D_MODEL)
    plain: dict[str, tuple[int, ...]] = {
        "position_embd.weight": (N_CTX, D_MODEL),
        "token_types.weight": (N_TYPES, D_MODEL),
    }
    return TinyModel("bert", keys, matrices, _layer_norms(body) | biases, plain=plain)


def tiny_bert_joined() -> TinyModel:
    """Queries, keys and values in one tensor; the first token's row."""
    model = tiny_bert()
    matrices, vectors = dict(model.matrices), dict(model.vectors)
    for layer in range(3):
        for name in ("attn_q", "attn_k", "attn_v"):
            del matrices[f"blk.{layer}.{name}.weight"], vectors[f"blk.{layer}.{name}.bias"]
        matrices[f"blk.{layer}.attn_qkv.weight"] = (768, D_MODEL)
        vectors[f"blk.{layer}.attn_qkv.bias"] = (768, 0.0)
    return TinyModel("bert", model.keys | {"pooling_type": CLS}, matrices, vectors, plain=model.plain)


def tiny_nomic_bert() -> TinyModel:
    """RoPE, a gated feed-forward, one tensor for queries, keys and values."""
    body = Body(n_kv_heads=4, rope_base=1000.0)
    matrices = body.matrices()
    for layer in range(body.n_layers):
        for name in ("attn_q", "attn_k", "attn_v"):
            del matrices[f"blk.{layer}.{name}.weight"]
        matrices[f"blk.{layer}.attn_qkv.weight"] = (768, D_MODEL)
    plain: dict[str, tuple[int, ...]] = {"token_types.weight": (N_TYPES, D_MODEL)}
    return TinyModel("nomic-bert", _encoder_keys(body), matrices, _layer_norms(body), plain=plain)


def tiny_gemma_embedding() -> TinyModel:
    """Six layers, of which the last sees everything; two matrices behind the pooling."""
    body = Body(n_layers=6, n_kv_heads=1, rope_base=1e6)
    keys = body.keys(attention__sliding_window=16, pooling_type=MEAN)
    keys |= {"dense_2_feat_in": D_MODEL, "dense_2_feat_out": 512, "dense_3_feat_in": 512, "dense_3_feat_out": D_MODEL}
    vectors = OUTPUT_NORM | body.norms(*ALL_NORMS) | body.norms(*HEAD_NORMS, width=64)
    matrices = body.matrices() | {"dense_2.weight": (512, D_MODEL), "dense_3.weight": (D_MODEL, 512)}
    return TinyModel("gemma-embedding", keys, matrices, vectors)


ENCODER_MODELS: dict[str, Callable[[], TinyModel]] = {
    "bert": tiny_bert,
    "bert-joined": tiny_bert_joined,
    "nomic-bert": tiny_nomic_bert,
    "gemma-embedding": tiny_gemma_embedding,
}
