"""The table of tokens: texts, types, what they decode to, and what is refused."""

from __future__ import annotations

import pytest

from emel.gguf.arrays import StringArray
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import byte_characters, id_of, string_array, tiny_tokenizer


def test_vocabulary_decodes_every_byte_token() -> None:
    vocabulary = Vocabulary(string_array(byte_characters()), None)
    assert [vocabulary.decode((each,)) for each in range(256)] == [bytes([each]) for each in range(256)]


def test_vocabulary_decodes_text_outside_the_byte_code_as_it_stands() -> None:
    vocabulary = Vocabulary(string_array(["Ġa", "▁a", "a\u0144b"]), None)
    assert vocabulary.decode((0, 1, 2)) == " a▁aa\u0144b".encode()


@pytest.mark.parametrize("bad", [-1, 259, 2**31 - 1, -(2**31), 2**31, -(2**40), 2**70])
def test_vocabulary_refuses_to_decode_ids_outside_it(bad: int) -> None:
    vocabulary = tiny_tokenizer().vocabulary
    with pytest.raises(IndexError, match=rf"token id {bad} is outside the vocabulary: allowed are 0 to 258"):
        vocabulary.decode([3, bad])


def test_vocabulary_refuses_types_of_another_length() -> None:
    with pytest.raises(ValueError, match="2 token types for 3 tokens"):
        Vocabulary(string_array("abc"), (1, 1))


@pytest.mark.parametrize(
    ("count", "raw", "message"),
    [
        (0, b"", "a vocabulary of 0 tokens"),
        (2**62, bytes(16), "a vocabulary of 4611686018427387904 tokens; allowed are 1 to 2147483646"),
        (100, bytes(16), "100 tokens do not fit the 16 bytes"),
        (2, bytes(8) + b"\xff" * 8, "token 1 of 2 reaches past the end"),
        (1, b"\x01" + bytes(7), "token 0 of 1 reaches past the end"),
    ],
)
def test_vocabulary_refuses_lying_arrays(count: int, raw: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vocabulary(StringArray(count, memoryview(raw)), None)


def test_vocabulary_finds_tokens_by_their_text() -> None:
    tokenizer = tiny_tokenizer([(b" ", b"a")])
    assert tokenizer.vocabulary.find("<|im_end|>") == 2
    assert tokenizer.vocabulary.find("Ġa") == id_of(tokenizer, b" a") == 259
    assert tokenizer.vocabulary.find("") is None
    assert tokenizer.vocabulary.find("nothing") is None
