"""Vocabularies with fewer or more tokens than the model has rows for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.errors import ModelLoadError
from emel.text.tokenizer import load_tokenizer
from model import tiny_llama
from model.random_weights import add_byte_vocabulary
from unit.text.tiny_vocabulary import tiny_metadata

if TYPE_CHECKING:
    from pathlib import Path

N_TOKENS = 259
GEOMETRY = tiny_llama.Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_vocab=2000, n_ctx=64)


def write_model(path: Path, n_tokens: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_vocabulary = add_byte_vocabulary
    monkeypatch.setattr(tiny_llama, "add_byte_vocabulary", lambda writer, _: write_vocabulary(writer, n_tokens))
    tiny_llama.write_tiny_llama(path, GEOMETRY, "Q8_0")
    return path


def test_tokenizer_gives_rows_without_a_token_no_text() -> None:
    tokenizer = load_tokenizer(tiny_metadata(), N_TOKENS + 5)
    last = N_TOKENS + 4
    assert tokenizer.token_bytes(last) == b""
    assert not tokenizer.is_control(last)
    (a,) = tokenizer.encode("a", add_special=False, parse_special=False)
    assert tokenizer.decode([a, last, N_TOKENS, a]) == b"aa"
    for outside in (last + 1, -1, 2**40):
        with pytest.raises(IndexError):
            tokenizer.decode([outside])


def test_tokenizer_with_more_tokens_than_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the vocabulary has 259 tokens .* but the model embeds only 258"):
        load_tokenizer(tiny_metadata(), N_TOKENS - 1)


def test_model_with_fewer_tokens_than_rows_generates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "few.gguf", 258, monkeypatch)
    with emel.load(path, n_threads=1) as model:
        result = model.generate("hello", max_tokens=20, temperature=1.0, seed=1)
        assert any(each >= 258 for each in result.token_ids)


def test_model_with_more_tokens_than_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "many.gguf", 2001, monkeypatch)
    with pytest.raises(ModelLoadError, match=r"the vocabulary has 2001 tokens .* but the model embeds only 2000"):
        emel.load(path, n_threads=1)
