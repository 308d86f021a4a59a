"""SentencePiece's BPE against the sentencepiece package, and by hand where it says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.special_ids import SpecialIds, find_special_ids
from emel.text.tokenizer import Tokenizer
from emel.text.tokenizer_spm import SpmEncoder
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, metadata, string_array
from unit.text.trained_sentencepiece import TEXTS, trained

BYTE = 6
MIXED = st.text("ab Helo\n\u0301\u00e9\u4e2d\u6587\U0001f600\u200d,.12", max_size=50)
OPTIONS = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}


def encoder_of(**options: object) -> tuple[SpmEncoder, object]:
    model = trained("bpe", **OPTIONS, **options)
    unknown = model.processor.unk_id()
    return SpmEncoder(model.vocabulary, model.scores, unknown=unknown), model.processor


@pytest.mark.parametrize("options", [{"byte_fallback": True}, {}, {"character_coverage": 0.98}])
def test_spm_agrees_with_sentencepiece(options: dict[str, object]) -> None:
    encoder, processor = encoder_of(**options)
    for text in TEXTS:
        assert encoder.encode(text, is_first=True) == processor.encode(text), text  # type: ignore[attr-defined]


@given(text=st.one_of(MIXED, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)))
@settings(deadline=None, max_examples=150)
def test_spm_agrees_with_sentencepiece_on_any_text(text: str) -> None:
    encoder, processor = encoder_of(byte_fallback=True)
    expected = processor.encode(text)  # type: ignore[attr-defined]
    assert (encoder.encode(text, is_first=True) if text else []) == expected


def bytes_vocabulary(*extra: tuple[str, float, int]) -> tuple[Vocabulary, list[float]]:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(text for text, _, _ in extra)]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *(kind for _, _, kind in extra)]
    return Vocabulary(string_array(texts), types, spelling=1), [0.0] * 259 + [score for _, score, _ in extra]


@pytest.mark.parametrize("add_space", [True, False])
@given(data=st.binary(max_size=60))
@settings(deadline=None, max_examples=80)
def test_spm_gives_any_bytes_back(add_space: bool, data: bytes) -> None:
    vocabulary, scores = bytes_vocabulary(
        ("\u2581", -1.0, NORMAL), ("\u2581\u2581", -2.0, NORMAL), ("ab", -3.0, NORMAL)
    )
    values = metadata(bos_token_id=1, eos_token_id=2)
    special = find_special_ids(values, vocabulary)
    tokenizer = Tokenizer(vocabulary, SpmEncoder(vocabulary, scores, add_space=add_space), special, add_space=add_space)
    if "\u2581".encode() not in data:  # which reads as a space
        assert tokenizer.decode(tokenizer.encode(data, add_special=False, parse_special=False)) == data


def test_spm_merges_the_highest_score_first_then_the_leftmost() -> None:
    texts = ["a", "b", "c", "ab", "bc", "aa"]
    vocabulary = Vocabulary(string_array(texts), None, spelling=1)
    by_score = SpmEncoder(vocabulary, [0, 0, 0, -2.0, -1.0, -3.0], add_space=False)
    assert by_score.encode("abc", is_first=True) == [0, 4]
    leftmost = SpmEncoder(vocabulary, [0, 0, 0, -1.0, -1.0, -1.0], add_space=False)
    assert leftmost.encode("abcaaa", is_first=True) == [3, 2, 5, 0]
    assert leftmost.encode("a" * 201, is_first=True) == [5] * 100 + [0]  # by the heap of long words


def test_spm_never_makes_control_byte_or_unknown_tokens_of_text() -> None:
    vocabulary, scores = bytes_vocabulary(*((each, -1.0, NORMAL) for each in "<s>/0x4un"), ("<s", -1.0, NORMAL))
    ids = SpmEncoder(vocabulary, scores, add_space=False).encode("<s></s><unk><0x41>", is_first=True)
    assert not set(ids) & {0, 1, 2, 3 + 0x41}


def test_spm_joins_across_a_space_where_a_token_does() -> None:
    texts = ["a", "\u2581", "b", "\u2581b", "a\u2581b", "a\u2581"]
    vocabulary = Vocabulary(string_array(texts), None, spelling=1)
    encoder = SpmEncoder(vocabulary, [0, 0, 0, -3.0, -1.0, -2.0], add_space=False)
    assert encoder.encode("a b", is_first=True) == [4]


def test_spm_adds_a_space_in_front_of_what_follows_a_special_token() -> None:
    extra = (("\u2581", -5.0, NORMAL), ("a", -5.0, NORMAL), ("\u2581a", -1.0, NORMAL), ("<x>", 0.0, USER_DEFINED))
    vocabulary, scores = bytes_vocabulary(*extra)
    tokenizer = Tokenizer(vocabulary, SpmEncoder(vocabulary, scores), SpecialIds(bos=1), add_space=True, add_bos=True)
    space_a = 261
    ids = tokenizer.encode("a<x>a", add_special=True, parse_special=False)
    assert ids == [1, space_a, 262, space_a]
    assert tokenizer.decode(ids[1:]) == b"a<x>a"
    assert tokenizer.token_bytes(space_a) == b" a"


def test_spm_without_bytes_says_unknown_once_for_characters_in_a_row() -> None:
    vocabulary = Vocabulary(string_array(["<unk>", "a"]), [UNKNOWN, NORMAL], spelling=1)
    assert SpmEncoder(vocabulary, [0, 0], add_space=False, unknown=0).encode("xya\u00e9", is_first=True) == [0, 1, 0]
    assert SpmEncoder(vocabulary, [0, 0], add_space=False).encode("xya\u00e9", is_first=True) == [1]


def test_spm_refuses_scores_of_another_length() -> None:
    with pytest.raises(ValueError, match="2 token scores for 3 tokens: one each is needed"):
        SpmEncoder(Vocabulary(string_array("abc"), None, spelling=1), [0.0, 1.0])


@pytest.mark.parametrize("unit", ["a", " ", "\u4e2d", "\x80", "a b", "\n"])
@pytest.mark.timeout(20)
def test_spm_takes_half_a_megabyte_of_anything(unit: str) -> None:
    extra = (("\u2581", -1.0, NORMAL), ("a", -1.0, NORMAL), ("aa", -2.0, NORMAL), ("\u2581\u2581", -2.0, NORMAL))
    vocabulary, scores = bytes_vocabulary(*extra)
    ids = SpmEncoder(vocabulary, scores, add_space=False).encode(unit * (500_000 // len(unit)), is_first=True)
    assert vocabulary.decode(ids).decode() == unit * (500_000 // len(unit))
