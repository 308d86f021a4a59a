"""BERT encoders of Hugging Face and Sentence Transformers: their parameters, how embeddings are pooled, WordPiece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.convert.hf_files import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from emel.convert.hf_parameters import Config

LEFT_OUT = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
"""Not part of an embedding."""
_POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}
"""By GGUF's numbers (`PoolingType` of the gguf package)."""
_SPECIAL = {"cls": "bos", "sep": "seperator", "unk": "unknown", "pad": "padding", "mask": "mask"}
_SPACE_MARK = "\u2581"


def encoder_keys(config: Config, folder: Path) -> dict[str, Any]:
    """Metadata without the architecture's prefix; ConvertError for settings EMEL does not compute."""
    if (activation := config.get("hidden_act", "gelu")) != "gelu":
        raise ConvertError(f"config.json has hidden_act {activation!r}: 'gelu' is supported")
    if (positions := config.get("position_embedding_type", "absolute")) != "absolute":
        raise ConvertError(f"config.json has position_embedding_type {positions!r}: 'absolute' is supported")
    names = {
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
    }
    if missing := [theirs for theirs in names.values() if not isinstance(config.get(theirs), int)]:
        raise ConvertError(f"config.json has {missing[0]} {config.get(missing[0])!r}: a whole number is needed")
    return {
        **{ours: config[theirs] for ours, theirs in names.items()},
        "attention.layer_norm_epsilon": float(config.get("layer_norm_eps", 1e-12)),
        "attention.causal": False,
        "pooling_type": _pooling(folder),
    }


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


def _pooling(folder: Path) -> int:
    """How Sentence Transformers pool, by default the mean; ConvertError for what they do besides."""
    modules = folder / "modules.json"
    if modules.exists() and "Dense" in modules.read_text(encoding="utf-8"):
        raise ConvertError("modules.json has a Dense module behind the pooling, which is not supported")
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return 1
    found = read_json(path)
    chosen = [number for key, number in _POOLINGS.items() if found.get(key)]
    if len(chosen) != 1:
        raise ConvertError(f"{str(path)!r} pools by none or several of {', '.join(_POOLINGS)}: one is supported")
    return chosen[0]
