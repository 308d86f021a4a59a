from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.pretokenizers import PRE_TOKENIZERS, pre_tokenizer, word_ends

NAMES = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm")  # one for each way to split
LONG_TEXTS = {
    "one letter": "A" * 43_000,
    "dots": "." * 26_000,
    "newlines": "\n" * 9_000,
    "a megabyte of one character": "a" * 1_000_000,
    "a megabyte of spaces": " " * 1_000_000,
    "a megabyte of digits": "7" * 1_000_000,
    "newline and space": "\n " * 200_000,
    "space and letter": "  x" * 100_000,
    "apostrophes": "'" * 100_000,
    "emoji": "\U0001f600" * 50_000,
    "lone bytes": "\udc80" * 50_000,
}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "gpt-2",
            "Hello world  42!\n\nit's I'M",
            ["Hello", " world", " ", " 42", "!", "\n", "\n", "it", "'s", " I", "'", "M"],
        ),
        ("smollm", "a  12 x3\n 4", ["a", "  ", "1", "2", " x", "3", "\n ", "4"]),
        ("smollm", "a  b", ["a", " ", " b"]),
        ("llama-bpe", "it'S 12345 x.\n\n  y\n  ", ["it", "'S", " ", "123", "45", " x", ".\n\n", " ", " y", "\n", "  "]),
        ("llama-bpe", "\tfoo(bar)", ["\tfoo", "(bar", ")"]),
        ("qwen2", "x 12\r\n\r\ny", ["x", " ", "1", "2", "\r\n\r\n", "y"]),
        ("default", "a+b 12345 (x)", ["a", "+", "b", " ", "123", "45", " ", "(", "x", ")"]),
    ],
)
def test_pre_tokenizer_splits_as_its_model_does(name: str, text: str, words: list[str]) -> None:
    assert pre_tokenizer(name).split(text) == words


@given(text=st.text(st.characters(codec=None)))
@settings(deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_pre_tokenizer_loses_nothing(name: str, text: str) -> None:
    words = pre_tokenizer(name).split(text)
    assert "".join(words) == text
    assert "" not in words


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", sorted(LONG_TEXTS))
@pytest.mark.timeout(10)
def test_pre_tokenizer_is_linear_on_long_runs(name: str, kind: str) -> None:
    assert "".join(pre_tokenizer(name).split(LONG_TEXTS[kind])) == LONG_TEXTS[kind]


def test_pre_tokenizer_names_of_one_way_to_split_share_it() -> None:
    assert pre_tokenizer("phi-2") is pre_tokenizer("gpt-2")
    assert pre_tokenizer("smaug-bpe").patterns == pre_tokenizer("llama-bpe").patterns
    assert not pre_tokenizer("smaug-bpe").ignore_merges
    assert {pre.patterns for pre in PRE_TOKENIZERS.values()} == {pre_tokenizer(name).patterns for name in NAMES}


def test_pre_tokenizer_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown pre-tokenizer 'poro-chat' .*known: .*llama-bpe.*qwen2.*smollm"):
        pre_tokenizer("poro-chat")


def test_word_ends_count_bytes() -> None:
    assert word_ends(["a", "é", "\udcff", "😀"]).tolist() == [1, 3, 4, 8]
