"""BERT encoders of Hugging Face and Sentence Transformers: their parameters, how embeddings are pooled, WordPiece.

Nomic Embed's config.json has GPT-2's names for sizes, or since transformers 5 the usual ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.convert.hf_files import read_json, read_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from emel.convert.hf_families import Config
    from emel.convert.hf_files import HfTensor

LEFT_OUT = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
"""Not part of an embedding."""
_POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
"""By GGUF's numbers (`PoolingType` of the gguf package)."""
_GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_attention_heads": "n_head",
}
_WANTED: dict[str, dict[str, object]] = {
    "bert": {"hidden_act": "gelu", "position_embedding_type": "absolute"},
    "nomic-bert": {
        "hidden_act": "silu",
        "activation_function": "swiglu",
        "prenorm": False,
        "parallel_block": False,
        "use_rms_norm": False,
        "causal": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
    },
}
"""What config.json may say, each where it says anything."""
_SPECIAL = {"cls": "bos", "sep": "seperator", "unk": "unknown", "pad": "padding", "mask": "mask"}
_SPACE_MARK = "\u2581"


def with_usual_names(config: Config) -> Config:
    """config.json with the sizes that have GPT-2's names under the usual ones, too."""
    return {usual: config[theirs] for usual, theirs in _GPT2_NAMES.items() if theirs in config} | config


def encoder_keys(config: Config, architecture: str) -> dict[str, Any]:
    """Metadata without the architecture's prefix; ConvertError for settings EMEL does not compute."""
    for key, wanted in _WANTED[architecture].items():
        if (found := config.get(key, wanted)) != wanted:
            raise ConvertError(f"config.json has {key} {found!r}: {wanted!r} is supported")
    names = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
    }
    if missing := [theirs for theirs in names.values() if not isinstance(config.get(theirs), int)]:
        raise ConvertError(f"config.json has {missing[0]} {config.get(missing[0])!r}: a whole number is needed")
    epsilon = config.get("layer_norm_eps") or config.get("layer_norm_epsilon") or 1e-12
    keys = {
        **{ours: config[theirs] for ours, theirs in names.items()},
        "attention.layer_norm_epsilon": float(epsilon),
        "attention.causal": False,
    }
    return keys | _nomic_keys(config) if architecture == "nomic-bert" else keys


def _nomic_keys(config: Config) -> dict[str, Any]:
    """Positions are turned; beyond those it was trained for Nomic's own code stretches them as EMEL does not."""
    base = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rotary_emb_base") or 1000.0
    trained = config.get("max_trained_positions") or config["max_position_embeddings"]
    return {"rope.freq_base": float(base), "context_length": min(int(trained), config["max_position_embeddings"])}


def pooling_keys(folder: Path, default: int | None) -> dict[str, Any]:
    """How Sentence Transformers pool, else by `default` (None: nothing is said); ConvertError for other ways."""
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return {} if default is None else {"pooling_type": default}
    found = read_json(path)
    chosen = [number for key, number in _POOLINGS.items() if found.get(key)]
    if len(chosen) != 1:
        raise ConvertError(f"{str(path)!r} pools by none or several of {', '.join(_POOLINGS)}: one is supported")
    return {"pooling_type": chosen[0]}


def dense_tensors(folder: Path) -> dict[str, HfTensor]:
    """Matrices behind the pooling by GGUF's names; ConvertError for those that are more than a matrix."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    found = {}
    for module in modules:
        if module["type"].endswith(".Dense"):
            own = folder / module["path"]
            config = read_json(own / "config.json")
            if config.get("bias") or not str(config.get("activation_function", "Identity")).endswith("Identity"):
                raise ConvertError(f"{str(own)!r} has a bias or an activation, which is not supported")
            found[f"dense_{module['idx']}.weight"] = read_tensors(own)["linear.weight"]
    return found


def add_word_pieces(writer: Any, folder: Path, n_vocab: int, n_types: int) -> None:
    """Writes a WordPiece vocabulary: pieces that begin a word get U+2581 in front, the others lose their "##"."""
    tokens = _word_pieces(folder)
    if len(tokens) > n_vocab:
        raise ConvertError(f"the vocabulary has {len(tokens)} tokens: the embedding has {n_vocab} rows")
    tokens += [f"[PAD{token_id}]" for token_id in range(len(tokens), n_vocab)]
    special = [each.startswith("[") and each.endswith("]") for each in tokens]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(n_types)
    writer.add_token_list(
        [
            each if is_special else each[2:] if each.startswith("##") else _SPACE_MARK + each
            for each, is_special in zip(tokens, special, strict=True)
        ]
    )
    writer.add_token_types([3 if each else 1 for each in special])  # control, normal
    for name, key in _SPECIAL.items():
        if (text := f"[{name.upper()}]") in tokens:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", tokens.index(text))
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    lowercase = bool(config.get("do_lower_case", True))
    accents = config.get("strip_accents")
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
    writer.add_bool("tokenizer.ggml.normalizer.strip_accents", lowercase if accents is None else bool(accents))


def _word_pieces(folder: Path) -> list[str]:
    if (path := folder / "vocab.txt").exists():
        return path.read_text(encoding="utf-8").splitlines()
    model = read_json(folder / "tokenizer.json").get("model", {})
    if model.get("type") != "WordPiece":
        raise ConvertError(f"tokenizer.json holds a {model.get('type')} model: encoders need WordPiece")
    vocab: dict[str, int] = model["vocab"]
    return sorted(vocab, key=vocab.__getitem__)
