from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.pretokenizer_patterns import PRE_TOKENIZERS, pre_tokenizer
from emel.text.pretokenizers import word_ends

NAMES = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm")
# One name for each way to split.
WAYS = sorted({pre.steps: name for name, pre in PRE_TOKENIZERS.items()}.values())
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
        ("gpt-4o", "HelloWorld it'S 1234", ["Hello", "World", " it'S", " ", "123", "4"]),
        ("tekken", "camelCase12", ["camel", "Case", "1", "2"]),
        ("deepseek-v3", "a 漢字か .x 1234", ["a", " ", "漢字か", " .", "x", " ", "123", "4"]),
        ("qwen35", "नमस्ते x", ["नमस्ते", " x"]),
        ("tiny_aya", "1234567 12345a", ["1", "234", "567", " ", "123", "45", "a"]),
        ("afmoe", "x 1234567", ["x", " ", "1", "234", "567"]),
        ("superbpe", "a b 1234567 c", ["a b ", "1", "234", "567", " c"]),
        ("kimi-k2", "漢字abc It's", ["漢字", "abc", " It's"]),
        ("exaone-moe", "a b c 1\n", ["a b c", " ", "1", "\n"]),
        ("seed-coder", "x!\ny", ["x", "!", "\n", "y"]),
        ("deepseek-llm", "a  b  ", ["a", " ", " b", "  "]),
        ("jais-2", "a" + " " * 9 + "b", ["a", " " * 8, " b"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("bloom", "a b.c", ["a", " b", ".", "c"]),
        ("default", "a+b 12345 (x)", ["a", "+", "b", " ", "123", "45", " ", "(", "x", ")"]),
    ],
)
def test_pre_tokenizer_splits_as_its_model_does(name: str, text: str, words: list[str]) -> None:
    assert pre_tokenizer(name).split(text) == words


@given(text=st.one_of(st.text(st.characters(codec=None)), st.text("aA1 \n.'漢\u0301s", max_size=60)))
@settings(deadline=None, max_examples=30)
@pytest.mark.parametrize("name", WAYS)
def test_pre_tokenizer_loses_nothing(name: str, text: str) -> None:
    words = pre_tokenizer(name).split(text)
    assert "".join(words) == text
    assert "" not in words


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", sorted(LONG_TEXTS))
@pytest.mark.timeout(10)
def test_pre_tokenizer_is_linear_on_long_runs(name: str, kind: str) -> None:
    assert "".join(pre_tokenizer(name).split(LONG_TEXTS[kind])) == LONG_TEXTS[kind]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.timeout(20)
def test_pre_tokenizer_of_every_name_is_linear(name: str) -> None:
    # Quadratic time for the longest of them, 30,000 characters, would be minutes.
    for text in (*LONG_TEXTS.values(), " " * 30_000 + "x", "7" * 30_000 + "x", "aA" * 15_000, "e\u0301" * 15_000):
        assert "".join(pre_tokenizer(name).split(text[-30_000:])) == text[-30_000:]


def test_pre_tokenizer_names_of_one_way_to_split_share_it() -> None:
    assert pre_tokenizer("phi-2") is pre_tokenizer("gpt-2")
    assert pre_tokenizer("smaug-bpe").steps == pre_tokenizer("llama-bpe").steps
    assert not pre_tokenizer("smaug-bpe").ignore_merges
    assert pre_tokenizer("gemma4").marks_spaces


def test_pre_tokenizer_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown pre-tokenizer 'klingon' .*known: .*llama-bpe.*qwen2.*smollm"):
        pre_tokenizer("klingon")


def test_word_ends_count_bytes() -> None:
    assert word_ends(["a", "é", "\udcff", "😀"]).tolist() == [1, 3, 4, 8]
