"""Pre-tokenizers of published tokenizer.json files, by the names llama.cpp gives them."""

from __future__ import annotations

from typing import Any

import pytest

from emel.convert.errors import ConvertError
from emel.convert.hf_pretokenizer import find_pre_tokenizer

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def tokenizer(*steps: dict[str, Any], ignore_merges: bool = False) -> dict[str, Any]:
    return {
        "model": {"type": "BPE", "ignore_merges": ignore_merges},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)},
    }


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (tokenizer({"type": "ByteLevel", "use_regex": True}), "gpt-2"),
        (tokenizer({"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}), "smollm"),
        (tokenizer(split(LLAMA3), BYTES, ignore_merges=True), "llama-bpe"),
        (tokenizer(split(LLAMA3), BYTES), "smaug-bpe"),
        (tokenizer(split(LLAMA3.replace("{1,3}", "")), BYTES), "qwen2"),
        (tokenizer(split(GPT4O), BYTES), "gpt-4o"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_published_patterns_get_their_names(found: dict[str, Any], name: str) -> None:
    assert find_pre_tokenizer(found) == name


def test_patterns_nobody_has_are_refused() -> None:
    expected = (
        r"^no known pre-tokenizer cuts text as this tokenizer.json does\nhint: --pre NAME says which one to take$"
    )
    with pytest.raises(ConvertError, match=expected):
        find_pre_tokenizer(tokenizer(split("[aeiou]"), BYTES))


def test_steps_nobody_has_are_refused() -> None:
    with pytest.raises(ConvertError, match=r"^the pre-tokenizer step 'Spell' of tokenizer.json is not known$"):
        find_pre_tokenizer(tokenizer({"type": "Spell"}))
