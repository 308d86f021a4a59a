"""Classes of Hugging Face models: each one's GGUF architecture and what differs in its directory."""

from __future__ import annotations

from typing import Any

from emel.convert.errors import ConvertError
from emel.lazy_dataclasses import dataclass

Config = dict[str, Any]
_MEAN = 1  # a pooling, by GGUF's numbers


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers: its GGUF architecture, the gguf package's name of that, and what differs."""

    architecture: str
    package_name: str
    permutes: bool = False  # rows of q and k are stored so that RoPE pairs adjacent ones
    adds_one: bool = False  # norms multiply by 1 + weight
    normalizes_experts: bool | None = None  # norm_topk_prob as EMEL computes; None: there is no such choice
    has_word_pieces: bool = False  # an encoder of BERT's kind
    adds_space: bool = True  # SentencePiece puts a space before a text
    adds_prefix: str = ""  # what names of tensors lack
    pooling: int | None = None  # of a text's tokens, where the directory says nothing; None: the model writes text
    has_dense: bool = False  # matrices behind the pooling
    rounds_yarn: bool = True  # the ends of YaRN's ramp are whole dimensions


FAMILIES = {
    "BertModel": Family("bert", "BERT", has_word_pieces=True, pooling=_MEAN),
    "Gemma2ForCausalLM": Family("gemma2", "GEMMA2", adds_one=True, adds_space=False),
    "Gemma3ForCausalLM": Family("gemma3", "GEMMA3", adds_one=True, adds_space=False),
    "Gemma3TextModel": Family(
        "gemma-embedding",
        "GEMMA_EMBEDDING",
        adds_one=True,
        adds_space=False,
        adds_prefix="model.",
        pooling=_MEAN,
        has_dense=True,
    ),
    "GptOssForCausalLM": Family("gpt-oss", "GPT_OSS", rounds_yarn=False),
    "GraniteForCausalLM": Family("granite", "GRANITE", permutes=True),
    "GraniteMoeForCausalLM": Family("granitemoe", "GRANITE_MOE", permutes=True),
    "GraniteMoeSharedForCausalLM": Family("granitemoe", "GRANITE_MOE", permutes=True),
    "Lfm2ForCausalLM": Family("lfm2", "LFM2"),
    "Lfm2MoeForCausalLM": Family("lfm2moe", "LFM2MOE", normalizes_experts=True),
    "LlamaForCausalLM": Family("llama", "LLAMA", permutes=True),
    "MistralForCausalLM": Family("llama", "LLAMA", permutes=True),
    "MixtralForCausalLM": Family("llama", "LLAMA", permutes=True),
    "NomicBertModel": Family("nomic-bert", "NOMIC_BERT", has_word_pieces=True, pooling=_MEAN),
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
    if family.architecture == "gemma-embedding" and not config.get("use_bidirectional_attention"):
        raise ConvertError(f"models of class {names[0]!r} are converted only with use_bidirectional_attention true")
    if family.architecture == "smollm3" and config.get("no_rope_layer_interval", 4) != 4:
        raise ConvertError("config.json has another no_rope_layer_interval than 4, which is not supported")
    return family


def head_dim_of(config: Config) -> int:
    """Width of a head."""
    given = config.get("head_dim")
    return int(given) if given else need(config, "hidden_size") // need(config, "num_attention_heads")


def kv_heads_of(config: Config) -> int:
    """Key heads of a layer with attention."""
    return int(config.get("num_key_value_heads") or need(config, "num_attention_heads"))


def experts_of(config: Config) -> int:
    """Experts of a layer; 0: none."""
    return int(config.get("num_local_experts") or config.get("num_experts") or 0)


def need(config: Config, key: str) -> int:
    """A whole number; ConvertError naming the key."""
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConvertError(f"config.json has {key} {value!r}: a whole number is needed")
    return value
