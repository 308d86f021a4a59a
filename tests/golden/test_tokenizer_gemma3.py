"""Gemma 3's tokenizer, SentencePiece with 262,144 tokens, against llama.cpp's ids (record_tokenizer_gemma3.py).

The model's terms must be agreed to, so nothing is fetched: $EMEL_TEST_GEMMA3 names the file, or it is in the cache.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from emel.gguf.file import open_gguf
from emel.text.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.model

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "tokenizer_gemma3.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    from emel.engine.hub_cache import models_folder

    given = os.environ.get("EMEL_TEST_GEMMA3")
    path = Path(given) if given else models_folder() / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        pytest.skip("Gemma 3 is not here: `emel pull gemma3-270m`, or set EMEL_TEST_GEMMA3")
    return load_tokenizer(open_gguf(path).metadata)


def test_golden_gemma3_agrees_with_llama_cpp_on_ordinary_text(tokenizer: Tokenizer) -> None:
    for case in CASES:
        assert tokenizer.encode(case["text"], add_special=False, parse_special=False) == case["ids"], case["text"]


def test_golden_gemma3_agrees_with_llama_cpp_where_control_tokens_are_read(tokenizer: Tokenizer) -> None:
    for case in CASES:
        expected = case.get("ids_special", case["ids"])
        assert tokenizer.encode(case["text"], add_special=False, parse_special=True) == expected, case["text"]


def test_golden_gemma3_gives_the_text_back(tokenizer: Tokenizer) -> None:
    for case in CASES:
        if "\u2581" not in case["text"]:  # which reads as a space
            assert tokenizer.decode(case["ids"]).decode() == case["text"]
