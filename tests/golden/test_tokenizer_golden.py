"""The real model's tokenizer and chats against the ids llama.cpp gives (record_tokenizer.py, record_llama_cpp.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emel.gguf.file import open_gguf
from emel.text.chat import load_chat_template
from emel.text.chat_tokens import encode_chat
from emel.text.pretokenizer_patterns import pre_tokenizer
from emel.text.special_ids import SpecialIds
from emel.text.tokenizer import Tokenizer, load_tokenizer
from emel.text.tokenizer_bpe import BpeEncoder
from emel.text.vocabulary import Vocabulary

pytestmark = pytest.mark.model

DATA = Path(__file__).parent / "data"
N_SHORT = 160
CASES: list[dict[str, Any]] = json.loads((DATA / "tokenizer_smollm2.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(open_gguf(smollm2_path).metadata)


def test_golden_tokenizer_agrees_with_llama_cpp_on_ordinary_text(tokenizer: Tokenizer) -> None:
    for case in CASES:
        assert tokenizer.encode(case["text"], add_special=True, parse_special=False) == case["ids"], case["text"]


def test_golden_tokenizer_agrees_with_llama_cpp_where_control_tokens_are_read(tokenizer: Tokenizer) -> None:
    for case in CASES:
        expected = case.get("ids_special", case["ids"])
        assert tokenizer.encode(case["text"], add_special=False, parse_special=True) == expected, case["text"]


@pytest.mark.parametrize("name", ["default", "gpt-2", "llama-bpe", "qwen2"])
def test_golden_pre_tokenizers_agree_with_llama_cpp(smollm2_path: Path, name: str) -> None:
    metadata, pre = open_gguf(smollm2_path).metadata, pre_tokenizer(name)
    tokens, merges = metadata.get_strings("tokenizer.ggml.tokens"), metadata.get_strings("tokenizer.ggml.merges")
    types = metadata.get_ints("tokenizer.ggml.token_type")
    vocabulary = Vocabulary(tokens, types)
    tokenizer = Tokenizer(vocabulary, BpeEncoder(vocabulary, merges, pre), SpecialIds())
    short = [case for case in CASES if len(case["text"]) < N_SHORT]
    assert sum(name in case.get("as", {}) for case in short) > 5
    for case in short:
        expected = case.get("as", {}).get(name, case["ids"])
        assert tokenizer.encode(case["text"], add_special=False, parse_special=False) == expected, case["text"]


def test_golden_tokenizer_gives_the_text_back(tokenizer: Tokenizer) -> None:
    # The vocabulary has no token for a few control characters and for some bytes of planes 4 to 16.
    lost = str.maketrans("", "", "\x04\x06\x13")
    for case in CASES:
        text = case["text"]
        if not any(character >= "\U00040000" for character in text):
            assert tokenizer.decode(case["ids"]).decode() == text.translate(lost)


def test_golden_chats_are_encoded_as_llama_cpp_encodes_them(smollm2_path: Path) -> None:
    metadata = open_gguf(smollm2_path).metadata
    tokenizer = load_tokenizer(metadata)
    template = load_chat_template(metadata, tokenizer)
    recorded = json.loads((DATA / "greedy_smollm2.json").read_text(encoding="utf-8"))["continuations"]
    chats = [each for each in recorded if each["form"] == "chat"]
    assert len(chats) >= 5
    for chat in chats:
        assert template.render(chat["messages"]) == chat["prompt"]
        assert encode_chat(tokenizer, template, chat["messages"]) == chat["prompt_ids"]
