# Invariant: whatever the arrays of a file hold, a vocabulary is made or refused with a ValueError; one that is made
# encodes and decodes anything without failing, gives ids inside the vocabulary, never a control token, and loses only
# bytes that it has no token for.
from __future__ import annotations

import struct
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from emel.gguf.arrays import StringArray
from emel.text.pretokenizers import PreTokenizer
from emel.text.tokenizer_bpe import BpeEncoder
from emel.text.vocabulary import Vocabulary

CONTROL = 3
TEXTS = st.lists(st.one_of(st.text("abĠĊ é<>", max_size=4).map(str.encode), st.binary(max_size=4)), max_size=30)
# Mostly true lengths, some that lie.
LENGTHS = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 2**64 - 1))


@st.composite
def string_arrays(draw: st.DrawFn) -> StringArray:
    texts = draw(TEXTS)
    if draw(st.booleans()):
        return StringArray(len(texts), memoryview(b"".join(struct.pack("<Q", len(text)) + text for text in texts)))
    raw = b"".join(struct.pack("<Q", draw(LENGTHS) or len(text)) + text for text in texts)
    count = draw(st.one_of(st.just(len(texts)), st.integers(0, 2**64 - 1)))
    return StringArray(count, memoryview(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw))


@given(
    tokens=string_arrays(),
    merges=string_arrays(),
    types=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=30, max_size=30),
    data=st.one_of(st.text("ab é<>\n", max_size=80).map(str.encode), st.binary(max_size=80)),
    ignore_merges=st.booleans(),
)
@settings(deadline=None, max_examples=400)
def test_bpe_is_total(
    tokens: StringArray, merges: StringArray, types: list[int], data: bytes, ignore_merges: bool
) -> None:
    kinds = [each % 8 for each in types][: min(tokens.count, 30)]
    try:
        vocabulary = Vocabulary(tokens, kinds if len(kinds) == tokens.count else None)
        encoder = BpeEncoder(vocabulary, merges, PreTokenizer((".",), ignore_merges=ignore_merges))
    except ValueError as error:
        assert str(error)  # noqa: PT017 - refusing is one of the two right outcomes
        return
    ids = encoder.encode_words(data, array("Q", [len(data) // 2, len(data)]))
    assert all(0 <= each < vocabulary.n_tokens for each in ids)
    assert not set(ids) & set(vocabulary.ids_of_types(CONTROL))
    rest = iter(data)
    assert all(byte in rest for byte in vocabulary.decode(ids))
