"""config.json of the architectures EMEL runs, as GGUF's metadata: each one's name, and the keys it has.

Keys and their meaning: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and EMEL's own `read_parameters` of
each architecture (emel.model).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.convert.errors import ConvertError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers: its GGUF architecture, the gguf package's name of that, and what differs."""

    architecture: str
    package_name: str
    permutes: bool = False  # rows of q and k are stored so that RoPE pairs adjacent ones
    adds_one: bool = False  # norms multiply by 1 + weight
    normalizes_experts: bool | None = None  # norm_topk_prob as EMEL computes; None: there is no such choice
    is_encoder: bool = False
    adds_space: bool = True  # SentencePiece puts a space before a text


FAMILIES = {
    "BertModel": Family("bert", "BERT", is_encoder=True),
    "Gemma2ForCausalLM": Family("gemma2", "GEMMA2", adds_one=True, adds_space=False),
    "Gemma3ForCausalLM": Family("gemma3", "GEMMA3", adds_one=True, adds_space=False),
    "GraniteForCausalLM": Family("granite", "GRANITE", permutes=True),
    "GraniteMoeForCausalLM": Family("granitemoe", "GRANITE_MOE", permutes=True),
    "Lfm2ForCausalLM": Family("lfm2", "LFM2"),
    "Lfm2MoeForCausalLM": Family("lfm2moe", "LFM2MOE", normalizes_experts=True),
    "LlamaForCausalLM": Family("llama", "LLAMA", permutes=True),
    "MistralForCausalLM": Family("llama", "LLAMA", permutes=True),
    "MixtralForCausalLM": Family("llama", "LLAMA", permutes=True),
    "Olmo2ForCausalLM": Family("olmo2", "OLMO2"),
    "OlmoeForCausalLM": Family("olmoe", "OLMOE", normalizes_experts=False),
    "Phi3ForCausalLM": Family("phi3", "PHI3"),
    "Qwen2ForCausalLM": Family("qwen2", "QWEN2"),
    "Qwen2MoeForCausalLM": Family("qwen2moe", "QWEN2MOE", normalizes_experts=False),
    "Qwen3ForCausalLM": Family("qwen3", "QWEN3"),
    "Qwen3MoeForCausalLM": Family("qwen3moe", "QWEN3MOE", normalizes_experts=True),
    "SmolLM3ForCausalLM": Family("smollm3", "SMOLLM3", permutes=True),
}


def find_family(config: Config) -> Family:
    """The family of a config.json; ConvertError naming those there are, and settings EMEL does not compute."""
    names = config.get("architectures") or ["(none)"]
    family = FAMILIES.get(names[0])
    if family is None:
        raise ConvertError(f"models of class {names[0]!r} are not converted: known are {', '.join(FAMILIES)}")
    wanted = family.normalizes_experts
    if wanted is not None and config.get("norm_topk_prob", wanted) != wanted:
        raise ConvertError(f"config.json has norm_topk_prob {config['norm_topk_prob']}: only {wanted} is supported")
    if config.get("use_sliding_window"):
        raise ConvertError("config.json has use_sliding_window true: only false is supported")
    if family.architecture == "smollm3" and config.get("no_rope_layer_interval", 4) != 4:
        raise ConvertError("config.json has another no_rope_layer_interval than 4, which is not supported")
    return family


def head_dim_of(config: Config) -> int:
    """Width of a head."""
    given = config.get("head_dim")
    return int(given) if given else _need(config, "hidden_size") // _need(config, "num_attention_heads")


def kv_heads_of(config: Config) -> int:
    """Key heads of a layer with attention."""
    return int(config.get("num_key_value_heads") or _need(config, "num_attention_heads"))


def experts_of(config: Config) -> int:
    """Experts of a layer; 0: none."""
    return int(config.get("num_local_experts") or config.get("num_experts") or 0)


def keys_of(config: Config, family: Family, d_ff: int) -> dict[str, Any]:
    """Metadata without the architecture's prefix: numbers, texts, and lists of these. `d_ff`: feed-forward width."""
    head_dim = head_dim_of(config)
    keys: dict[str, Any] = {
        "block_count": _need(config, "num_hidden_layers"),
        "context_length": _need(config, "max_position_embeddings"),
        "embedding_length": _need(config, "hidden_size"),
        "feed_forward_length": d_ff,
        "attention.head_count": _need(config, "num_attention_heads"),
        "attention.head_count_kv": kv_heads_of(config),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps") or config.get("norm_eps") or 1e-6),
        "rope.dimension_count": int(head_dim * float(config.get("partial_rotary_factor") or 1.0)),
        "rope.freq_base": float(_rope(config).get("rope_theta") or config.get("rope_theta") or 10000.0),
    }
    keys |= _rope_scaling_keys(config)
    if n_experts := experts_of(config):
        keys |= {"expert_count": n_experts, "expert_used_count": _need(config, "num_experts_per_tok")}
        if "moe_intermediate_size" in config:
            keys["expert_feed_forward_length"] = int(config["moe_intermediate_size"])
    return keys | _own_keys(config, family, keys["block_count"])


def rope_factors(config: Config) -> dict[str, NDArray[np.float32]]:
    """Tensors that divide the frequencies of RoPE: Llama 3's, and both sets of LongRoPE."""
    scaling = _rope(config)
    kind = _scaling_type(scaling)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(config, scaling)}
    if kind == "longrope":
        return {
            f"rope_factors_{each}.weight": np.asarray(scaling[f"{each}_factor"], dtype=np.float32)
            for each in ("long", "short")
        }
    return {}


def _own_keys(config: Config, family: Family, n_layers: int) -> dict[str, Any]:
    """What one architecture has and others have not."""
    window, name = config.get("sliding_window"), family.architecture
    if name in ("llama", "phi3") and window:
        return {"attention.sliding_window": int(window)}
    if name == "qwen2moe":
        return {"expert_shared_feed_forward_length": int(config["shared_expert_intermediate_size"])}
    makers = {"gemma2": _gemma2_keys, "gemma3": _gemma3_keys, "granite": _granite_keys, "granitemoe": _granite_keys}
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
    sliding = _rope(config, "sliding_attention").get("rope_theta") if "rope_parameters" in config else None
    local = float(config.get("rope_local_base_freq") or sliding or 10000.0)
    window = int(config.get("sliding_window") or 4096)
    keys: dict[str, Any] = {"attention.sliding_window": window, "rope.freq_base_swa": local}
    if types := config.get("layer_types"):
        keys["attention.sliding_window_pattern"] = [each == "sliding_attention" for each in types]
    elif period := config.get("sliding_window_pattern"):
        keys["attention.sliding_window_pattern"] = int(period)
    return _checked_scores(config, keys, n_layers, 62)


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
        "shortconv.l_cache": _need(config, "conv_L_cache"),
    }


def _checked_scores(config: Config, keys: dict[str, Any], n_layers: int, n_layers_27b: int) -> dict[str, Any]:
    """Gemma's scores are scaled by the head's width, but in the 27B models."""
    scalar = config.get("query_pre_attn_scalar")
    if scalar is not None and n_layers != n_layers_27b and int(scalar) != head_dim_of(config):
        raise ConvertError(f"config.json has query_pre_attn_scalar {scalar}: {head_dim_of(config)} is supported")
    return keys


def _rope(config: Config, kind: str = "full_attention") -> Config:
    """What config.json says of RoPE, in layers of a kind where it tells them apart."""
    found: Config = config.get("rope_scaling") or config.get("rope_parameters") or {}
    nested: Config | None = found.get(kind)
    return found if nested is None else nested


def _scaling_type(scaling: Config) -> str:
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    return "longrope" if kind == "su" else kind


def _rope_scaling_keys(config: Config) -> dict[str, Any]:
    scaling = _rope(config)
    kind, context = _scaling_type(scaling), _need(config, "max_position_embeddings")
    original = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    match kind:
        case "default" | "llama3":
            return {}
        case "linear":
            return {"rope.scaling.type": "linear", "rope.scaling.factor": float(scaling["factor"])}
        case "yarn":
            keys = {"rope.scaling.type": "yarn", "rope.scaling.factor": float(scaling["factor"])}
            return keys | {"rope.scaling.original_context_length": int(original or context)}
        case "longrope":
            first = int(original or context)
            ratio = context / first
            factor = math.sqrt(1 + math.log(ratio) / math.log(first)) if ratio > 1 else 1.0
            return {"rope.scaling.original_context_length": first, "rope.scaling.attn_factor": factor}
    raise ConvertError(f"config.json stretches contexts by {kind!r}: default, linear, llama3, longrope, yarn are known")


def _llama3_factors(config: Config, scaling: Config) -> NDArray[np.float32]:
    """(head_dim / 2,) divisors: 1 for short waves, `factor` for long ones, a blend between (Llama 3.1's model.py)."""
    head_dim = head_dim_of(config)
    base = float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    original = float(scaling["original_max_position_embeddings"])
    waves = 2 * np.pi * base ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    blend = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - blend) / factor + blend)).astype(np.float32)


def _need(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConvertError(f"config.json has {key} {value!r}: a whole number is needed")
    return value
