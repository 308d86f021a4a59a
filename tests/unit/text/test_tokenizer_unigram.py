"""Unigram against the sentencepiece package. Its sums are single floats, ours double ones: ties may fall otherwise."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.tokenizer_unigram import UnigramEncoder
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import NORMAL, UNKNOWN, string_array
from unit.text.trained_sentencepiece import TEXTS, Trained, trained

PLAIN = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
OPTIONS: list[dict[str, object]] = [
    {}, {"byte_fallback": True}, PLAIN, {"add_dummy_prefix": False}, {"normalization_rule_name": "nmt_nfkc_cf"},
]  # fmt: skip


def encoder_of(model: Trained, options: dict[str, object]) -> UnigramEncoder:
    return UnigramEncoder(
        model.vocabulary,
        model.scores,
        model.charsmap,
        add_space=bool(options.get("add_dummy_prefix", True)),
        remove_extra_spaces=bool(options.get("remove_extra_whitespaces", True)),
        unknown=model.processor.unk_id(),
    )


def assert_as_good(model: Trained, ids: list[int], expected: list[int], text: str) -> None:
    if ids == expected:
        return
    assert model.processor.decode(ids) == model.processor.decode(expected), text
    total, best = (sum(model.scores[each] for each in some) for some in (ids, expected))
    assert total == pytest.approx(best, abs=1e-3), text


@pytest.mark.parametrize("options", OPTIONS)
def test_unigram_agrees_with_sentencepiece(options: dict[str, object]) -> None:
    model = trained("unigram", **options)
    encoder = encoder_of(model, options)
    for text in (*TEXTS, "  ", "\u3000\u3000x", "x" * 30, "\ufffd \U0001f9ff?"):
        assert_as_good(model, encoder.encode(text, is_first=True), model.processor.encode(text), text)


@given(
    text=st.one_of(st.text("ab \u3000\u00a0\u00c9\u00e9\uff21\u4e2d\u0301\n.Helo", max_size=40), st.text(max_size=20))
)
@settings(deadline=None, max_examples=150)
def test_unigram_agrees_with_sentencepiece_on_any_text(text: str) -> None:
    if "\0" in text:
        return
    model = trained("unigram")
    assert_as_good(model, encoder_of(model, {}).encode(text, is_first=True), model.processor.encode(text), text)


@given(data=st.binary(max_size=40))
@settings(deadline=None, max_examples=80)
def test_unigram_takes_any_bytes(data: bytes) -> None:
    model = trained("unigram", byte_fallback=True)
    ids = encoder_of(model, {}).encode(data.decode("utf-8", "surrogateescape"), is_first=True)
    assert all(0 <= each < model.vocabulary.n_tokens for each in ids)


@given(charsmap=st.binary(max_size=80), text=st.text(max_size=20))
@settings(deadline=None, max_examples=150)
def test_unigram_character_map_is_refused_or_harmless(charsmap: bytes, text: str) -> None:
    model = trained("unigram", **PLAIN)
    n_units = max(len(charsmap) - 4, 0) // 8 * 4  # mostly a map that announces what it has
    for each in (charsmap, struct.pack("<I", n_units) + charsmap[4:]):
        try:
            encoder = UnigramEncoder(model.vocabulary, model.scores, each, unknown=0)
        except ValueError as error:
            assert "the character map of" in str(error)  # noqa: PT017 - refusing is one of the two right outcomes
        else:
            assert all(0 <= one < model.vocabulary.n_tokens for one in encoder.encode(text, is_first=True))


def test_unigram_says_unknown_once_for_characters_in_a_row() -> None:
    vocabulary = Vocabulary(string_array(["<unk>", "a", "\u2581"]), [UNKNOWN, NORMAL, NORMAL], spelling=1)
    encoder = UnigramEncoder(vocabulary, [0, -1, -1], add_space=False, unknown=0)
    assert encoder.encode("xya\u00e9", is_first=True) == [0, 1, 0]


def test_unigram_refuses_scores_of_another_length() -> None:
    with pytest.raises(ValueError, match="1 token scores for 2 tokens: one each is needed"):
        UnigramEncoder(Vocabulary(string_array("ab"), None, spelling=1), [0.0])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["a", " ", "\u4e2d", "\u3000", "z"])
def test_unigram_takes_half_a_megabyte_of_anything(unit: str) -> None:
    model = trained("unigram")
    ids = encoder_of(model, {}).encode(unit * 500_000, is_first=True)
    assert len(ids) > 1000 or not unit.strip() or ids[-1] == model.processor.unk_id()
