"""What config.json says of rotary positions: rope_scaling in transformers 4, rope_parameters in transformers 5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emel.convert.errors import ConvertError
from emel.convert.hf_families import head_dim_of, need

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.convert.hf_families import Config, Family


def rope_factors(config: Config) -> dict[str, NDArray[np.float32]]:
    """Tensors that divide the frequencies of RoPE: Llama 3's, and both sets of LongRoPE."""
    scaling = rope_of(config)
    kind = _scaling_type(scaling)
    if kind == "llama3":
        return {"rope_freqs.weight": _llama3_factors(config, scaling)}
    if kind == "longrope":
        return {
            f"rope_factors_{each}.weight": np.asarray(scaling[f"{each}_factor"], dtype=np.float32)
            for each in ("long", "short")
        }
    return {}


def rope_of(config: Config, kind: str = "full_attention") -> Config:
    """What config.json says of RoPE, in layers of a kind where it tells them apart."""
    found: Config = config.get("rope_scaling") or config.get("rope_parameters") or {}
    nested: Config | None = found.get(kind)
    return found if nested is None else nested


def _scaling_type(scaling: Config) -> str:
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    return "longrope" if kind == "su" else kind


def rotary_share(config: Config) -> float:
    """Of the dimensions of a head, those that RoPE turns."""
    return float(config.get("partial_rotary_factor") or rope_of(config).get("partial_rotary_factor") or 1.0)


def rope_scaling_keys(config: Config, family: Family) -> dict[str, Any]:
    """How a context was stretched, as metadata; ConvertError for ways EMEL does not know."""
    scaling = rope_of(config)
    kind, context = _scaling_type(scaling), need(config, "max_position_embeddings")
    original = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    match kind:
        case "default" | "llama3":
            return {}
        case "linear":
            return {"rope.scaling.type": "linear", "rope.scaling.factor": float(scaling["factor"])}
        case "yarn":
            return _yarn_keys(scaling, int(original or context), family)
        case "longrope":
            first = int(original or context)
            ratio = context / first
            usual = math.sqrt(1 + math.log(ratio) / math.log(first)) if ratio > 1 else 1.0
            factor = float(scaling.get("attention_factor") or usual)
            return {"rope.scaling.original_context_length": first, "rope.scaling.attn_factor": factor}
    raise ConvertError(f"config.json stretches contexts by {kind!r}: default, linear, llama3, longrope, yarn are known")


def _yarn_keys(scaling: Config, original: int, family: Family) -> dict[str, Any]:
    """GGUF's factor of cosines and sines multiplies the one that YaRN takes by itself, Hugging Face's replaces it."""
    if scaling.get("truncate", True) != family.rounds_yarn or "mscale" in scaling:
        raise ConvertError(
            f"config.json stretches contexts by yarn with mscale {scaling.get('mscale')} and truncate "
            f"{scaling.get('truncate', True)}: supported are None and {family.rounds_yarn}"
        )
    factor = float(scaling["factor"])
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
    }
    keys |= {
        f"rope.scaling.yarn_{each}": float(scaling[each]) for each in ("beta_fast", "beta_slow") if each in scaling
    }
    if given := scaling.get("attention_factor"):
        keys["rope.scaling.attn_factor"] = float(given) / (0.1 * math.log(factor) + 1.0)
    return keys


def _llama3_factors(config: Config, scaling: Config) -> NDArray[np.float32]:
    """(head_dim / 2,) divisors: 1 for short waves, `factor` for long ones, a blend between (Llama 3.1's model.py)."""
    head_dim = head_dim_of(config)
    base = float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    original = float(scaling["original_max_position_embeddings"])
    waves = 2 * np.pi * base ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    blend = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - blend) / factor + blend)).astype(np.float32)
