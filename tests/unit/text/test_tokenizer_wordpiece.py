"""WordPiece against the tokenizers package."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Reference
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from emel.text.tokenizer import load_tokenizer
from emel.text.tokenizer_wordpiece import WordPieceEncoder
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, UNKNOWN, metadata, string_array

PIECES = (
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "hello",
    "hel",
    "##lo",
    "##l",
    "a",
    "##a",
    "e",
    "##e",
    "b",
    ",",
    "!",
    "\u4e2d",
    "\u00e9",
    "##\u0301",
    "wor",
    "##ld",
    "1",
    "##2",
    "$",
)
TEXTS = (
    "Hello, world!",
    "H\u00e9llo a\u0301a\u0302",
    "\u4e2d\u4e2da",
    "a\u00a0b\u3000c",
    "a\u200bb\u00adc",
    "ea12 $1",
    "x",
    "",
    "  ",
    "a" * 100,
    "a" * 101,
    "\ufffda\0b",
    "Hel\nlo\tA",
    "a\u2581b",
)


def vocabulary() -> Vocabulary:
    texts = [*PIECES[:3], *(each[2:] if each.startswith("##") else "\u2581" + each for each in PIECES[3:])]
    return Vocabulary(string_array(texts), [UNKNOWN, CONTROL, CONTROL, *[NORMAL] * (len(PIECES) - 3)], spelling=1)


def reference(lowercase: bool, strip_accents: bool) -> Reference:
    found = Reference(WordPiece({text: index for index, text in enumerate(PIECES)}, unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return found


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_wordpiece_agrees_with_tokenizers(lowercase: bool, strip_accents: bool) -> None:
    encoder = WordPieceEncoder(vocabulary(), lowercase=lowercase, strip_accents=strip_accents, unknown=0)
    expected = reference(lowercase, strip_accents)
    for text in TEXTS:
        assert encoder.encode(text, is_first=True) == expected.encode(text, add_special_tokens=False).ids, text


@given(text=st.text("aehlowrd12,!$\u00e9\u0301\u4e2d \u00a0\n\u200b\u0130\u03a3", max_size=40))
@settings(deadline=None, max_examples=150)
def test_wordpiece_agrees_with_tokenizers_on_any_text(text: str) -> None:
    encoder = WordPieceEncoder(vocabulary(), unknown=0)
    assert encoder.encode(text, is_first=True) == reference(True, True).encode(text, add_special_tokens=False).ids


def test_wordpiece_words_of_old_characters_are_those_of_tokenizers() -> None:
    # Up to Unicode 8, which both know; every 7th of the first planes.
    normalizer, cut = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    encoder = WordPieceEncoder(vocabulary())
    for first in (0x20, 0x300, 0x400, 0x2000, 0x3000, 0x4DF0, 0xAC00, 0xF900, 0x1F600):
        for code_point in range(first, first + 0x200, 7):
            text = f"x{chr(code_point)}y"
            words = [word for word, _ in cut.pre_tokenize_str(normalizer.normalize_str(text))]
            assert encoder.words_of(text) == words, hex(code_point)


def test_wordpiece_file_is_read_with_its_begin_and_separator() -> None:
    texts = ["[UNK]", "[CLS]", "[SEP]", "\u2581a", "b"]
    tokenizer = load_tokenizer(metadata(model="bert", tokens=string_array(texts)))
    assert tokenizer.encode("ab A", add_special=True, parse_special=False) == [1, 3, 4, 3, 2]
    assert tokenizer.encode("zz", add_special=False, parse_special=False) == [0]
    assert tokenizer.decode([3, 4, 3]) == b"ab a"
    assert tokenizer.encode(b"\xff\x00", add_special=False, parse_special=False) == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["a", " ", "\u4e2d", "a\u0301", ","])
def test_wordpiece_takes_half_a_megabyte_of_anything(unit: str) -> None:
    ids = WordPieceEncoder(vocabulary(), unknown=0).encode(unit * 500_000, is_first=True)
    assert len(ids) in (0, 1, 500_000)
