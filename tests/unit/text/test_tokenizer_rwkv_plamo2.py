"""The two families that search a trie: RWKV for the longest token, PLaMo-2 for the cheapest way through."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.tokenizer import load_tokenizer
from emel.text.tokenizer_plamo2 import Plamo2Encoder
from emel.text.tokenizer_rwkv import RwkvEncoder
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, metadata, string_array

BYTE = 6
ESCAPED, PLAIN = 2, 3


def rwkv() -> tuple[RwkvEncoder, Vocabulary]:
    single = [repr(bytes([byte]))[2:-1] for byte in range(256)]
    texts = ["<s>", *single, "ab", "abc", "\\n\\n", "\\xe6\\xad\\xa3", "\\'s", "\\\\\\\\"]
    vocabulary = Vocabulary(string_array(texts), [CONTROL, *[NORMAL] * (len(texts) - 1)], spelling=ESCAPED)
    return RwkvEncoder(vocabulary), vocabulary


def test_rwkv_takes_the_longest_token_at_each_place() -> None:
    encoder, vocabulary = rwkv()
    ids = encoder.encode("abcabd\n\n\n\u6b63's\\\\<s>", is_first=True)
    pieces = [vocabulary.decode((each,)) for each in ids]
    assert pieces == [b"abc", b"ab", b"d", b"\n\n", b"\n", b"\xe6\xad\xa3", b"'s", b"\\\\", b"<", b"s", b">"]


@given(data=st.one_of(st.binary(), st.text("abc\n'\\\u6b63").map(str.encode)))
@settings(deadline=None)
def test_rwkv_gives_any_bytes_back(data: bytes) -> None:
    encoder, vocabulary = rwkv()
    assert vocabulary.decode(encoder.encode(data.decode("utf-8", "surrogateescape"), is_first=True)) == data


def test_rwkv_says_unknown_for_bytes_where_no_token_begins() -> None:
    vocabulary = Vocabulary(string_array(["?", "ab"]), None, spelling=ESCAPED)
    assert RwkvEncoder(vocabulary, unknown=0).encode("abac", is_first=True) == [1, 0, 0]
    assert RwkvEncoder(vocabulary).encode("abac", is_first=True) == [1]


PIECES = {
    "a": -3.0,
    "b": -3.0,
    "ab": -5.0,
    "bc": -1.0,
    "c": -4.0,
    "abc": -5.9,
    "\u6b63": -2.0,
    "\u6b63a": -9.0,
    "x": math.nan,
}


def plamo2() -> tuple[Plamo2Encoder, Vocabulary]:
    texts = ["<|plamo:bos|>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    types = [CONTROL, *[BYTE] * 256, *[NORMAL] * len(PIECES)]
    vocabulary = Vocabulary(string_array(texts), types, spelling=PLAIN)
    return Plamo2Encoder(vocabulary, [0.0] * 257 + list(PIECES.values())), vocabulary


def cheapest(text: str) -> float:
    costs = [0.0] + [math.inf] * len(text)
    for end in range(1, len(text) + 1):
        costs[end] = costs[end - 1] + 1000
        for piece, score in PIECES.items():
            if text[:end].endswith(piece) and not math.isnan(score):
                costs[end] = min(costs[end], costs[end - len(piece)] - score)
    return costs[-1]


@given(text=st.text("abc\u6b63xz\u00e9", max_size=20))
@settings(deadline=None, max_examples=150)
def test_plamo2_takes_the_cheapest_way(text: str) -> None:
    encoder, vocabulary = plamo2()
    ids = encoder.encode(text, is_first=True)
    assert vocabulary.decode(ids) == text.encode()
    n_unknown = sum(each in "xz\u00e9" for each in text)
    known = sum(list(PIECES.values())[each - 257] for each in ids if each >= 257)
    assert 1000 * n_unknown - known == pytest.approx(cheapest(text))


def test_plamo2_drops_a_byte_order_mark_and_falls_back_to_bytes() -> None:
    encoder, vocabulary = plamo2()
    assert encoder.encode("\ufeffab", is_first=True) == [vocabulary.find("ab")]
    assert encoder.encode("\u00e9\udcff", is_first=True) == [1 + 0xC3, 1 + 0xA9, 1 + 0xFF]


def test_plamo2_refuses_scores_of_another_length() -> None:
    with pytest.raises(ValueError, match="1 token scores for 2 tokens"):
        Plamo2Encoder(Vocabulary(string_array("ab"), None, spelling=PLAIN), [0.0])


@pytest.mark.parametrize("unit", ["a", "abc", "\u6b63", "z", "\udcff"])
@pytest.mark.timeout(20)
def test_tries_take_half_a_megabyte_of_anything(unit: str) -> None:
    text = unit * (500_000 // len(unit))
    for encoder, vocabulary in (plamo2(), rwkv()):
        assert vocabulary.decode(encoder.encode(text, is_first=True)) == text.encode("utf-8", "surrogateescape")


def test_rwkv_file_is_read() -> None:
    texts = ["<s>", *(repr(bytes([byte]))[2:-1] for byte in range(256))]
    tokenizer = load_tokenizer(metadata(model="rwkv", tokens=string_array(texts), eos_token_id=0))
    assert tokenizer.encode("\n\u00e9", add_special=True, parse_special=False) == [11, 0xC3 + 1, 0xA9 + 1]
    assert tokenizer.end_ids == {0}
