"""The native merge loop of BPE against a slow, obvious one, and the table's boundary."""

from __future__ import annotations

import threading
from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel._native import NativeError
from emel.gguf.arrays import StringArray
from emel.text.pretokenizers import PreTokenizer
from emel.text.tokenizer_bpe import BpeEncoder
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, string_array, tiny_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.text.tokenizer import Tokenizer

Merges = list[tuple[bytes, bytes]]


def encoder_of(
    tokens: StringArray, types: Sequence[int] | None, merges: StringArray | None, *, ignore_merges: bool = False
) -> BpeEncoder:
    return BpeEncoder(Vocabulary(tokens, types), merges, PreTokenizer((r"[^x]+",), ignore_merges=ignore_merges))


def bpe_of(tokenizer: Tokenizer) -> BpeEncoder:
    assert isinstance(tokenizer._encoder, BpeEncoder)
    return tokenizer._encoder


def merge_slowly(word: bytes, merges: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Lowest rank first, leftmost among equals, one merge at a time."""
    ranks: dict[tuple[bytes, bytes], int] = {}
    for rank, pair in enumerate(merges):
        ranks.setdefault(pair, rank)
    parts = [word[i : i + 1] for i in range(len(word))]
    while True:
        candidates = [(ranks[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not candidates:
            return parts
        _, i = min(candidates)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@st.composite
def merge_tables(draw: st.DrawFn) -> Merges:
    parts = [b"a", b"b", b"c", b" "]
    merges: Merges = []
    for _ in range(draw(st.integers(0, 12))):
        pair = (draw(st.sampled_from(parts)), draw(st.sampled_from(parts)))
        if len(pair[0] + pair[1]) <= 24:
            merges.append(pair)
            parts.append(pair[0] + pair[1])
    return draw(st.permutations(merges))


@given(merges=merge_tables(), word=st.text("abc ", min_size=1, max_size=70))
@settings(max_examples=150, deadline=None)
def test_bpe_merges_as_the_slow_loop_does(merges: Merges, word: str) -> None:
    # Up to 70 bytes: both the array of short words (up to 32) and the heap of long ones.
    tokenizer = tiny_tokenizer(merges)
    encoder = bpe_of(tokenizer)
    data = word.encode()
    ids = encoder.encode_words(data, array("Q", [len(data)]))
    assert [tokenizer.vocabulary.decode((each,)) for each in ids] == merge_slowly(data, merges)


@pytest.mark.parametrize("n", [31, 32, 33])
def test_bpe_gives_the_same_on_both_sides_of_the_short_word_limit(n: int) -> None:
    merges = [(b"a", b"a"), (b"aa", b"aa"), (b"aa", b"a")]
    tokenizer = tiny_tokenizer(merges)
    encoder = bpe_of(tokenizer)
    ids = encoder.encode_words(b"a" * n, array("Q", [n]))
    assert [tokenizer.vocabulary.decode((each,)) for each in ids] == merge_slowly(b"a" * n, merges)


@given(data=st.binary(max_size=200))
@settings(deadline=None)
def test_bpe_gives_any_bytes_back(data: bytes) -> None:
    tokenizer = tiny_tokenizer([(b"\xe6", b"\xad"), (b"\x00", b"\x00")])
    encoder = bpe_of(tokenizer)
    assert tokenizer.vocabulary.decode(encoder.encode_words(data, array("Q", [len(data)]))) == data


def test_bpe_keeps_the_first_of_equal_tokens_and_merges() -> None:
    tokens = string_array(["a", "b", "ab", "ab", "ba"])
    encoder = encoder_of(tokens, None, string_array(["a b", "b a", "a b"]))
    assert encoder.encode_words(b"aba", array("Q", [3])) == [2, 0]


def test_bpe_leaves_out_merges_that_make_no_token() -> None:
    encoder = encoder_of(string_array(["a", "b", "bb"]), None, string_array(["a b", "c b", "b b"]))
    assert encoder.encode_words(b"abb", array("Q", [3])) == [0, 2]


def test_bpe_never_merges_into_a_control_token() -> None:
    encoder = encoder_of(string_array(["a", "b", "ab"]), (NORMAL, NORMAL, CONTROL), string_array(["a b"]))
    assert encoder.encode_words(b"ab", array("Q", [2])) == [0, 1]


def test_bpe_ignoring_merges_takes_whole_words_but_no_control_token() -> None:
    tokens = string_array(["a", "b", "ab", "ba"])
    plain = encoder_of(tokens, (NORMAL, NORMAL, NORMAL, CONTROL), None)
    ignoring = encoder_of(tokens, (NORMAL, NORMAL, NORMAL, CONTROL), None, ignore_merges=True)
    ends = array("Q", [2, 4])
    assert plain.encode_words(b"abba", ends) == [0, 1, 1, 0]
    assert ignoring.encode_words(b"abba", ends) == [2, 1, 0]


def test_bpe_leaves_out_bytes_without_a_token() -> None:
    encoder = encoder_of(string_array(["a"]), None, None)
    assert encoder.encode_words(b"axa" * 20, array("Q", [3, 60])) == [0] * 40


@pytest.mark.parametrize(
    ("ends", "message"),
    [([3, 2, 4], "ascend"), ([5], "ascend"), ([2], "the words end before the text does"), ([], "end before")],
)
def test_bpe_refuses_word_ends_that_do_not_cover_the_text(ends: list[int], message: str) -> None:
    with pytest.raises(NativeError, match=message):
        bpe_of(tiny_tokenizer()).encode_words(b"abcd", array("Q", ends))


@pytest.mark.parametrize("merge", ["", "a", "ab", " a", "a ", "  "])
def test_bpe_refuses_merges_without_two_parts(merge: str) -> None:
    with pytest.raises(ValueError, match="the vocabulary cannot be used: merge 1 is not two parts with a space"):
        encoder_of(string_array("abc"), None, string_array(["a b", merge]))


def test_bpe_refuses_a_lying_merge_array() -> None:
    with pytest.raises(ValueError, match="merge 0 of 1 reaches past the end"):
        encoder_of(string_array("ab"), None, StringArray(1, memoryview(b"\x09" + bytes(7))))


def test_bpe_is_safe_from_many_threads() -> None:
    tokenizer = tiny_tokenizer([(b"a", b"b"), (b"ab", b"ab")])
    encoder = bpe_of(tokenizer)
    data = b"abab" * 500
    expected = encoder.encode_words(data, array("Q", [len(data)]))
    seen: list[bool] = []

    def encode_often() -> None:
        seen.extend(encoder.encode_words(data, array("Q", [len(data)])) == expected for _ in range(50))

    threads = [threading.Thread(target=encode_often) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [True] * 200
