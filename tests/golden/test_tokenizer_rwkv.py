"""RWKV's real vocabulary, of the package `rwkv` (`pip install rwkv`): the ids its own tokenizer gives.

Skipped without the package, which nothing else needs.
"""

from __future__ import annotations

import ast
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from emel.text.tokenizer import load_tokenizer
from unit.text.tiny_vocabulary import CONTROL, NORMAL, metadata, string_array

rwkv_tokenizer = pytest.importorskip("rwkv.rwkv_tokenizer")

VOCABULARY = Path(rwkv_tokenizer.__file__).with_name("rwkv_vocab_v20230424.txt")
CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data/tokenizer_smollm2.json").read_text(encoding="utf-8")
)


def escaped_tokens() -> list[str]:
    """The texts llama.cpp's converter writes (convert_hf_to_gguf.py, _set_vocab_rwkv_world): `repr` without quotes."""
    texts = ["<s>"]
    for line in VOCABULARY.read_text(encoding="utf-8").splitlines():
        value = ast.literal_eval(line[line.index(" ") : line.rindex(" ")].strip())
        data = value if isinstance(value, bytes) else value.encode("utf-8")
        texts.append(repr(data)[2:-1])
    return texts


def test_ids_are_those_of_rwkvs_own_tokenizer() -> None:
    texts = escaped_tokens()
    types = memoryview(array("i", [CONTROL, *[NORMAL] * (len(texts) - 1)]))
    tokenizer = load_tokenizer(metadata(model="rwkv", tokens=string_array(texts), token_type=types, eos_token_id=0))
    own = rwkv_tokenizer.TRIE_TOKENIZER(str(VOCABULARY))
    for case in CASES:
        data = case["text"].encode("utf-8")
        ids = tokenizer.encode(case["text"], add_special=False, parse_special=False)
        assert ids == own.encodeBytes(data), case["text"][:80]
        assert tokenizer.decode(ids) == data
