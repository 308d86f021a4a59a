"""BERT's settings and WordPiece vocabularies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from emel.convert.errors import ConvertError
from emel.convert.hf_encoders import add_word_pieces, dense_tensors, encoder_keys, pooling_keys
from emel.gguf import open_gguf
from emel.text.tokenizer import load_tokenizer
from model.gguf_writing import finish
from unit.convert.hf_models import put_dense

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 6,
    "max_position_embeddings": 512,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_attention_heads": 12,
    "layer_norm_eps": 1e-12,
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "C"]


def pooled_by(folder: Path, **modes: bool) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("mode", "number"), [("mean_tokens", 1), ("cls_token", 2), ("lasttoken", 3)])
def test_pooling_is_that_of_sentence_transformers(tmp_path: Path, mode: str, number: int) -> None:
    folder = pooled_by(tmp_path, **{f"pooling_mode_{mode}": True})
    assert pooling_keys(folder, 1) == {"pooling_type": number}


def test_keys_are_those_of_gguf() -> None:
    keys = encoder_keys(CONFIG, "bert")
    assert (keys["block_count"], keys["context_length"], keys["attention.head_count"]) == (6, 512, 12)
    assert (keys["attention.layer_norm_epsilon"], keys["attention.causal"]) == (1e-12, False)


def test_pooling_is_the_default_where_nothing_is_said(tmp_path: Path) -> None:
    assert pooling_keys(tmp_path, 1) == {"pooling_type": 1}
    assert pooling_keys(tmp_path, None) == {}


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"hidden_act": "relu"}, r"^config.json has hidden_act 'relu': 'gelu' is supported$"),
        (
            {"position_embedding_type": "relative_key"},
            r"position_embedding_type 'relative_key': 'absolute' is supported$",
        ),
        ({"hidden_size": None}, r"^config.json has hidden_size None: a whole number is needed$"),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], seen: str) -> None:
    with pytest.raises(ConvertError, match=seen):
        encoder_keys(CONFIG | changes, "bert")


def test_other_kinds_of_nomic_are_refused() -> None:
    with pytest.raises(ConvertError, match=r"^config.json has prenorm True: False is supported$"):
        encoder_keys(CONFIG | {"prenorm": True}, "nomic-bert")


def test_pooling_by_several_ways_is_refused(tmp_path: Path) -> None:
    both = pooled_by(tmp_path, pooling_mode_mean_tokens=True, pooling_mode_cls_token=True)
    with pytest.raises(ConvertError, match=r"pools by none or several of pooling_mode_mean_tokens, "):
        pooling_keys(both, 1)


def test_dense_modules_with_more_than_a_matrix_are_refused(tmp_path: Path) -> None:
    put_dense(tmp_path, 2, np.ones((3, 2), np.float32))
    assert dense_tensors(tmp_path)["dense_2.weight"].load().tolist() == [[1, 1]] * 3
    put_dense(tmp_path, 3, np.ones((3, 2), np.float32), "Tanh")
    with pytest.raises(ConvertError, match=r"3_Dense' has a bias or an activation, which is not supported$"):
        dense_tensors(tmp_path)


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(("lowercase", "last"), [(True, 1), (False, 8)])
def test_word_pieces_tokenize_as_bert_does(tmp_path: Path, lowercase: bool, last: int, is_json: bool) -> None:
    if is_json:
        model = {"type": "WordPiece", "vocab": {text: n for n, text in enumerate(TOKENS)}}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}), encoding="utf-8")
    writer = gguf.GGUFWriter(tmp_path / "vocabulary.gguf", "bert")
    add_word_pieces(writer, tmp_path, 12, 2)
    finish(writer)
    with open_gguf(tmp_path / "vocabulary.gguf") as file:
        tokenizer = load_tokenizer(file.metadata)
    assert tokenizer.encode("the cats C", add_special=True, parse_special=False) == [2, 5, 6, 7, last, 3]


def test_more_pieces_than_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    with pytest.raises(ConvertError, match=r"^the vocabulary has 9 tokens: the embedding has 5 rows$"):
        add_word_pieces(None, tmp_path, 5, 2)
