"""config.json of the architectures EMEL runs, as GGUF's metadata: each one's name, and the keys it has.

Keys and their meaning: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and EMEL's own `read_parameters` of
each architecture (emel.model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.convert.hf_families import experts_of, head_dim_of, kv_heads_of, need
from emel.convert.hf_rope import rope_of, rope_scaling_keys, rotary_share

if TYPE_CHECKING:
    from emel.convert.hf_families import Config, Family


def keys_of(config: Config, family: Family, d_ff: int) -> dict[str, Any]:
    """Metadata without the architecture's prefix: numbers, texts, and lists of these. `d_ff`: feed-forward width."""
    head_dim = head_dim_of(config)
    keys: dict[str, Any] = {
        "block_count": need(config, "num_hidden_layers"),
        "context_length": need(config, "max_position_embeddings"),
        "embedding_length": need(config, "hidden_size"),
        "feed_forward_length": d_ff,
        "attention.head_count": need(config, "num_attention_heads"),
        "attention.head_count_kv": kv_heads_of(config),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps") or config.get("norm_eps") or 1e-6),
        "rope.dimension_count": int(head_dim * rotary_share(config)),
        "rope.freq_base": float(rope_of(config).get("rope_theta") or config.get("rope_theta") or 10000.0),
    }
    keys |= rope_scaling_keys(config, family)
    if n_experts := experts_of(config):
        keys |= {"expert_count": n_experts, "expert_used_count": need(config, "num_experts_per_tok")}
        if "moe_intermediate_size" in config:
            keys["expert_feed_forward_length"] = int(config["moe_intermediate_size"])
    return keys | _own_keys(config, family, keys["block_count"])


def _own_keys(config: Config, family: Family, n_layers: int) -> dict[str, Any]:
    """What one architecture has and others have not."""
    window, name = config.get("sliding_window"), family.architecture
    if name in ("llama", "phi3") and window:
        return {"attention.sliding_window": int(window)}
    if name == "qwen2moe":
        return {"expert_shared_feed_forward_length": int(config["shared_expert_intermediate_size"])}
    makers = {
        "gemma2": _gemma2_keys,
        "gemma3": _gemma3_keys,
        "gemma-embedding": _gemma3_keys,
        "gpt-oss": _gpt_oss_keys,
        "granite": _granite_keys,
        "granitemoe": _granite_keys,
    }
    if name in makers:
        return makers[name](config, n_layers)
    if name in ("lfm2", "lfm2moe"):
        keys = _hybrid_keys(config, n_layers)
        if name == "lfm2moe":
            keys |= {"leading_dense_block_count": int(config.get("num_dense_layers", 0)), "expert_gating_func": 2}
        return keys
    return {}


def _gemma2_keys(config: Config, n_layers: int) -> dict[str, Any]:
    keys: dict[str, Any] = {"attention.sliding_window": int(config.get("sliding_window") or 4096)}
    for name in ("attn", "final"):
        keys[f"{name}_logit_softcapping"] = float(config.get(f"{name}_logit_softcapping") or 0.0)
    return _checked_scores(config, keys, n_layers, 46)


def _gemma3_keys(config: Config, n_layers: int) -> dict[str, Any]:
    sliding = rope_of(config, "sliding_attention").get("rope_theta") if "rope_parameters" in config else None
    local = float(config.get("rope_local_base_freq") or sliding or 10000.0)
    window = int(config.get("sliding_window") or 4096)
    keys: dict[str, Any] = {"attention.sliding_window": window, "rope.freq_base_swa": local} | _window_pattern(config)
    if "layer_types" not in config and (period := config.get("sliding_window_pattern")):
        keys["attention.sliding_window_pattern"] = int(period)
    return _checked_scores(config, keys, n_layers, 62)


def _gpt_oss_keys(config: Config, _n_layers: int) -> dict[str, Any]:
    for key, wanted in (("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)):
        if config.get(key, wanted) != wanted:
            raise ConvertError(f"config.json has {key} {config[key]}: only {wanted} is supported")
    keys: dict[str, Any] = {
        "attention.sliding_window": need(config, "sliding_window"),
        "expert_feed_forward_length": need(config, "intermediate_size"),
    }
    return keys | _window_pattern(config)


def _window_pattern(config: Config) -> dict[str, Any]:
    """Which layers have the window, where config.json names each layer's kind."""
    types = config.get("layer_types")
    return {"attention.sliding_window_pattern": [each == "sliding_attention" for each in types]} if types else {}


def _granite_keys(config: Config, _n_layers: int) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "embedding_scale": float(config.get("embedding_multiplier", 1.0)),
        "attention.scale": float(config.get("attention_multiplier", 0.0)),
        "residual_scale": float(config.get("residual_multiplier", 1.0)),
        "logit_scale": float(config.get("logits_scaling", 1.0)),
    }
    if shared := config.get("shared_intermediate_size"):
        keys["expert_shared_feed_forward_length"] = int(shared)
    return keys


def _hybrid_keys(config: Config, n_layers: int) -> dict[str, Any]:
    attends = set(config.get("full_attn_idxs") or ())
    attends |= {layer for layer, each in enumerate(config.get("layer_types") or ()) if each == "full_attention"}
    kv_heads = kv_heads_of(config)
    return {
        "attention.head_count_kv": [kv_heads if layer in attends else 0 for layer in range(n_layers)],
        "shortconv.l_cache": need(config, "conv_L_cache"),
    }


def _checked_scores(config: Config, keys: dict[str, Any], n_layers: int, n_layers_27b: int) -> dict[str, Any]:
    """Gemma's scores are scaled by the head's width, but in the 27B models."""
    scalar = config.get("query_pre_attn_scalar")
    if scalar is not None and n_layers != n_layers_27b and int(scalar) != head_dim_of(config):
        raise ConvertError(f"config.json has query_pre_attn_scalar {scalar}: {head_dim_of(config)} is supported")
    return keys
