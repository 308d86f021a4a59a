from __future__ import annotations

from typing import Any

import pytest

from emel.text import sampling_tokens
from emel.text.sampling import SamplingError, SamplingParams
from emel.text.sampling_tokens import biases_by_id, find_breakers, with_breakers

checked: Any = SamplingParams  # which takes more than its fields are typed for, and makes it that


class Letters:
    """A tokenizer of a few tokens that spells greedily, the longest first."""

    TOKENS = (b"a", b"b", b"ab", b"\n", b"a\nb", b"b\n", b"END", b"E", b"N", b"D", b"xEN", b"DE", b"9")

    def __init__(self) -> None:
        self.n_vocab = len(self.TOKENS)
        self.n_asked = 0

    def token_bytes(self, token: int) -> bytes:
        self.n_asked += 1
        return self.TOKENS[token]

    def encode(self, text: str | bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special
        data = text.encode() if isinstance(text, str) else text
        ids = []
        while data:
            token = max((each for each in self.TOKENS if data.startswith(each)), key=len)
            ids.append(self.TOKENS.index(token))
            data = data[len(token) :]
        return ids


def letters() -> Any:
    return Letters()


def test_breakers_are_tokens_with_the_text_inside() -> None:
    assert find_breakers(letters(), "\n") == ((3,), (4,), (5,))


def test_breakers_are_tokens_that_end_with_a_beginning_and_what_spells_the_rest() -> None:
    assert find_breakers(letters(), "END") == ((6,), (7, 8, 9), (10, 9), (11, 8, 9))
    assert find_breakers(letters(), "aab") == ((0, 2),)


def test_breakers_are_looked_for_once_and_only_for_dry() -> None:
    tokenizer = letters()
    off = checked(dry_sequence_breakers=["\n"])
    assert with_breakers(off, tokenizer) is off
    unused = checked(dry_multiplier=1, dry_sequence_breakers=["\n"], samplers="k")
    assert with_breakers(unused, tokenizer) is unused
    none = checked(dry_multiplier=1, dry_sequence_breakers=[])
    assert with_breakers(none, tokenizer) is none
    assert tokenizer.n_asked == 0
    for _ in range(2):
        params = with_breakers(checked(dry_multiplier=1, dry_sequence_breakers=["\n", "b"]), tokenizer)
        assert params.dry_breaker_ids == ((1,), (2,), (3,), (4,), (5,))
    assert tokenizer.n_asked == 2 * tokenizer.n_vocab
    assert "dry_breaker_ids" not in params.effective()


def test_tokens_of_breakers_are_kept_of_a_thousand_texts_at_most() -> None:
    tokenizer = letters()
    for first in range(30):
        texts = [letter * (1 + first) + "b" * each for letter in "ab" for each in range(32)]
        with_breakers(checked(dry_multiplier=1, dry_sequence_breakers=texts[:60]), tokenizer)
        assert len(sampling_tokens._found[tokenizer]) <= 1024 + 64


def test_texts_of_biases_are_few_and_short() -> None:
    few = {f"{'a' * 1023}b": 1}
    with pytest.raises(SamplingError, match="this is 1023 "):
        biases_by_id(few, letters())
    for biases in ({"a" * 1025: 1}, [["a" * 1025, 1]]):
        with pytest.raises(SamplingError, match="texts of at most 1024 characters"):
            biases_by_id(biases, letters())
    assert biases_by_id([["a", 1]] * 1024, letters()) == [(0, 1)] * 1024
    with pytest.raises(SamplingError, match="logit_bias is '1025 texts': allowed are at most 1024, and any token ids"):
        biases_by_id([["a", 1]] * 1025, letters())
    assert biases_by_id([[1, 1]] * 2000, letters()) == [(1, 1)] * 2000


def test_biases_by_text_are_those_of_its_only_token() -> None:
    assert biases_by_id({"ab": 1, 0: False}, letters()) == [(2, 1), (0, False)]
    assert biases_by_id([["ab", 1], (1, 2.5)], letters()) == [(2, 1), (1, 2.5)]


def test_biases_of_a_dict_may_name_ids_by_digits_as_openai_does() -> None:
    assert biases_by_id({"3": -100}, letters()) == [(3, -100)]


def test_more_digits_than_an_id_has_are_a_text() -> None:
    assert biases_by_id({"9" * 19: 1}, letters()) == [(int("9" * 19), 1)]
    with pytest.raises(SamplingError, match=r"\Alogit_bias is '999.*: this is ") as caught:
        biases_by_id({"9" * 1000: 1}, letters())
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("biases", [{"ba": 1}, [["ba", 1]]])
def test_biases_of_several_tokens_are_refused(biases: Any) -> None:
    with pytest.raises(SamplingError, match=r"logit_bias is 'ba': allowed are .*: this is 2 \[1, 0\]"):
        biases_by_id(biases, letters())


@pytest.mark.parametrize("biases", [5, None, "ab", [5], ["ab"], [(1, 2, 3)]])
def test_biases_that_are_none_are_left_to_be_refused(biases: Any) -> None:
    with pytest.raises(SamplingError, match="logit_bias is "):
        checked(logit_bias=biases_by_id(biases, letters()))
