"""Tiny random models of transformers' own classes, each with what its architecture is easily confused by.

    model = make_model("Qwen3ForCausalLM")      # float32, every parameter random
    save_model(model, folder)                   # as Hugging Face has it: config.json, safetensors, a tokenizer

The sizes differ wherever they may: query heads from key heads, a head's width from d_model / n_heads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import transformers

from unit.convert.hf_models import tokenizer_json

if TYPE_CHECKING:
    from pathlib import Path

N_VOCAB = 300
SIZES: dict[str, Any] = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 32}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOW = {"sliding_window": 8}
GRANITE = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.15,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
FACTORS = {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.0 + 0.5 * n for n in range(6)],
    "short_factor": [1.0 + 0.1 * n for n in range(6)],
    "original_max_position_embeddings": 64,
    "partial_rotary_factor": 0.75,
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "llama3": ("LlamaForCausalLM", WIDE | {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-biases": ("LlamaForCausalLM", GROUPED | {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralForCausalLM", WIDE | WINDOW),
    "mixtral": ("MixtralForCausalLM", GROUPED | {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen2-yarn": ("Qwen2ForCausalLM", GROUPED | {"rope_parameters": YARN}),
    "qwen2-yarn-factors": ("Qwen2ForCausalLM", GROUPED | {"rope_parameters": YARN | FACTORS}),
    "qwen3": ("Qwen3ForCausalLM", WIDE),
    "qwen2moe": (
        "Qwen2MoeForCausalLM",
        GROUPED | EXPERTS | {"shared_expert_intermediate_size": 48, "norm_topk_prob": False},
    ),
    "qwen3moe": ("Qwen3MoeForCausalLM", WIDE | EXPERTS | {"norm_topk_prob": True}),
    "lfm2": (
        "Lfm2ForCausalLM",
        GROUPED | {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    ),
    "lfm2-adjusted": ("Lfm2ForCausalLM", GROUPED | {"layer_types": ["conv", "conv", "full_attention"]}),
    "lfm2moe": (
        "Lfm2MoeForCausalLM",
        GROUPED | EXPERTS | {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    ),
    "gemma2": ("Gemma2ForCausalLM", WIDE | WINDOW | {"query_pre_attn_scalar": 32}),
    "gemma3": (
        "Gemma3ForCausalLM",
        WIDE | WINDOW | {"query_pre_attn_scalar": 32, "num_hidden_layers": 7, "rope_parameters": GEMMA3_ROPE},
    ),
    "phi3": ("Phi3ForCausalLM", GROUPED | WINDOW),
    "phi3-long": ("Phi3ForCausalLM", GROUPED | {"rope_parameters": LONG, "original_max_position_embeddings": 64}),
    "granite": ("GraniteForCausalLM", GROUPED | GRANITE),
    "granitemoe": ("GraniteMoeForCausalLM", GROUPED | GRANITE | {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "granitemoe-shared": (
        "GraniteMoeSharedForCausalLM",
        GROUPED | GRANITE | {"num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 48},
    ),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "olmoe": ("OlmoeForCausalLM", GROUPED | {"num_experts": 5, "num_experts_per_tok": 2}),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED | {"num_hidden_layers": 5}),
    "gpt-oss": (
        "GptOssForCausalLM",
        WIDE
        | WINDOW
        | {
            "num_hidden_layers": 4,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "rope_parameters": YARN | {"truncate": False},
        },
    ),
}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", SIZES),
    "nomic-bert": ("NomicBertModel", SIZES),
    "gemma-embedding": (
        "Gemma3TextModel",
        WIDE | WINDOW | {"query_pre_attn_scalar": 32, "num_hidden_layers": 7, "use_bidirectional_attention": True},
    ),
}


def make_model(class_name: str, settings: dict[str, Any], seed: int = 0) -> Any:
    """A model in float32 whose parameters are all random: norms around what leaves values alone, matrices that keep
    the size of what they are multiplied with."""
    torch.manual_seed(seed)
    cls: Any = getattr(transformers, class_name)
    config = cls.config_class(**settings)
    config._attn_implementation = config._experts_implementation = "eager"  # which float64 goes through
    model = cls(config).eval()
    tensors = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("expert_bias"))]
    with torch.no_grad():
        for name, tensor in tensors:
            around = tensor.mean() if "norm" in name.lower() and name.endswith("weight") else 0.0
            spread = 0.2 if tensor.dim() == 1 else tensor.shape[-1] ** -0.5
            tensor.copy_(around + spread * torch.randn_like(tensor))
    return model


def save_model(model: Any, folder: Path, *, has_word_pieces: bool = False) -> None:
    """Writes the directory."""
    model.save_pretrained(folder)
    if has_word_pieces:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(N_VOCAB - 5))]
        (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    else:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()), encoding="utf-8")
