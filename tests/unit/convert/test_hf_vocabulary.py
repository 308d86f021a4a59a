"""SentencePiece vocabularies of Hugging Face directories, with and without tokenizer.model."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from emel.convert.errors import ConvertError
from emel.convert.hf_vocabulary import add_vocabulary
from emel.gguf import open_gguf
from emel.text.tokenizer import Tokenizer, load_tokenizer
from model.gguf_writing import finish

if TYPE_CHECKING:
    from pathlib import Path

MARK = "\u2581"
TEXT = "the cat and the hat sat on the mat, and that was that. " * 40


def loaded(folder: Path, n_vocab: int, **options: Any) -> Tokenizer:
    writer = gguf.GGUFWriter(folder / "vocabulary.gguf", "llama")
    add_vocabulary(writer, folder, n_vocab, **{"adds_space": True, **options})
    finish(writer)
    with open_gguf(folder / "vocabulary.gguf") as file:
        return load_tokenizer(file.metadata)


def write(folder: Path, name: str, content: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_merges_of_pieces_become_scores(tmp_path: Path) -> None:
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        MARK,
        *"theca",
        "th",
        "the",
        f"{MARK}the",
    ]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "byte_fallback": True,
        "vocab": {text: token_id for token_id, text in enumerate(dict.fromkeys(texts))},
        "merges": ["t h", ["th", "e"], f"{MARK} the"],
    }
    added = [{"id": n, "content": text, "special": True} for n, text in enumerate(["<unk>", "<s>", "</s>"])]
    write(tmp_path, "tokenizer.json", {"model": model, "added_tokens": added})
    vocab: dict[str, int] = model["vocab"]  # type: ignore[assignment]
    tokenizer = loaded(tmp_path, len(vocab))
    ids = tokenizer.encode("the cat\u00e9", add_special=False, parse_special=False)
    assert ids[0] == vocab[f"{MARK}the"]
    assert ids[1:4] == [vocab[MARK], vocab["c"], vocab["a"]]
    assert tokenizer.decode(ids) == "the cat\u00e9".encode()
    assert tokenizer.is_control(vocab["<s>"])


def test_pieces_of_a_sentencepiece_model_are_those_of_the_package(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split(". ")),
        model_writer=out,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    (tmp_path / "tokenizer.model").write_bytes(out.getvalue())
    added = {"300": {"content": "<tool>", "special": False}, "301": {"content": "<turn>", "special": True}}
    write(tmp_path, "tokenizer_config.json", {"added_tokens_decoder": added})
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    tokenizer = loaded(tmp_path, 304)
    for text in ("the cat sat", "that hat, and more", "ü"):
        assert tokenizer.encode(text, add_special=False, parse_special=False) == processor.encode(text)
    assert tokenizer.encode("a<tool>", add_special=False, parse_special=False)[-1] == 300
    assert tokenizer.is_control(301)
    without = loaded(tmp_path, 304, adds_space=False)
    assert without.decode(without.encode(" the", add_special=False, parse_special=False)) == b" the"


def test_other_tokenizers_are_refused_by_kind(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer.json", {"model": {"type": "WordPiece", "vocab": {}}})
    with pytest.raises(ConvertError, match=r"^tokenizer.json holds a WordPiece model: BPE is supported$"):
        loaded(tmp_path, 10)


def test_tokens_beyond_the_embedding_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0, "b": 12}, "merges": []}})
    with pytest.raises(ConvertError, match=r"^token 'b' has the id 12: the embedding has 10 rows$"):
        loaded(tmp_path, 10)
