from __future__ import annotations

import pytest

from emel.text.special import SpecialPattern, find_special_ids
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, USER_DEFINED, metadata, string_array, tiny_tokenizer


def pattern_of(*texts: str) -> SpecialPattern:
    vocabulary = Vocabulary(string_array(texts), [CONTROL] * len(texts))
    return SpecialPattern(vocabulary, range(len(texts)))


def test_partition_takes_the_leftmost_then_the_longest() -> None:
    pattern = pattern_of("<a", "<a>", "a>b", ".*")
    assert list(pattern.partition("x<a>b<a.*")) == [("x", 1), ("b", 0), ("", 3), ("", None)]


def test_partition_of_an_empty_set_keeps_the_text() -> None:
    assert list(pattern_of("").partition("<a>")) == [("<a>", None)]


def test_partition_matches_texts_that_are_not_ascii() -> None:
    assert list(pattern_of("<｜end▁of▁sentence｜>").partition("日<｜end▁of▁sentence｜>本")) == [("日", 0), ("本", None)]  # noqa: RUF001


@pytest.mark.parametrize(
    ("texts", "named", "ends"),
    [
        (["a", "<|im_end|>", "<|endoftext|>"], {"eos_token_id": 0}, {0, 1, 2}),
        (["<|eot_id|>", "<|eom_id|>", "b"], {}, {0, 1}),
        (["a", "b", "c"], {"eos_token_id": 0, "eot_token_id": 1, "eom_token_id": 2}, {0, 1, 2}),
        (["<|end|>", "a"], {"eos_token_id": 1}, {0, 1}),
        (["<|end|>", "<|return|>", "<|call|>"], {"eos_token_id": 1}, {1, 2}),
        (["a"], {}, set()),
    ],
)
def test_special_ids_name_every_token_that_ends_a_turn(texts: list[str], named: dict[str, int], ends: set[int]) -> None:
    vocabulary = Vocabulary(string_array(texts), None)
    found = find_special_ids(metadata(**named), vocabulary)
    assert found.ends == ends
    assert found.eos == named.get("eos_token_id")
    assert found.bos is None


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"])
def test_special_ids_outside_the_vocabulary_are_refused(key: str) -> None:
    vocabulary = Vocabulary(string_array("abc"), None)
    with pytest.raises(ValueError, match=rf"tokenizer.ggml.{key} is 3: allowed are 0 to 2"):
        find_special_ids(metadata(**{key: 3}), vocabulary)


def test_user_defined_tokens_are_matched_in_any_text_control_tokens_on_request() -> None:
    tokenizer = tiny_tokenizer(extra={"<think>": USER_DEFINED, "<box>": CONTROL, "<x>": NORMAL})
    think, box = (tokenizer.vocabulary.find(each) for each in ("<think>", "<box>"))
    plain = tokenizer.encode("<think><box><x>", add_special=False, parse_special=False)
    parsed = tokenizer.encode("<think><box><x>", add_special=False, parse_special=True)
    assert plain[0] == think
    assert box not in plain
    assert parsed[:2] == [think, box]
    assert tokenizer.decode(plain) == tokenizer.decode(parsed) == b"<think><box><x>"
    assert len(parsed) == 2 + len("<x>")
