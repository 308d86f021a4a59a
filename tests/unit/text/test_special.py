from __future__ import annotations

from emel.text.special import SpecialPattern
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, NORMAL, USER_DEFINED, string_array, tiny_tokenizer


def pattern_of(*texts: str) -> SpecialPattern:
    vocabulary = Vocabulary(string_array(texts), [CONTROL] * len(texts))
    return SpecialPattern(vocabulary, (CONTROL,))


def test_partition_takes_the_leftmost_then_the_longest() -> None:
    pattern = pattern_of("<a", "<a>", "a>b", ".*")
    assert list(pattern.partition("x<a>b<a.*")) == [("x", 1), ("b", 0), ("", 3), ("", None)]


def test_partition_of_an_empty_set_keeps_the_text() -> None:
    assert list(pattern_of("").partition("<a>")) == [("<a>", None)]


def test_partition_matches_texts_that_are_not_ascii() -> None:
    assert list(pattern_of("<｜end▁of▁sentence｜>").partition("日<｜end▁of▁sentence｜>本")) == [("日", 0), ("本", None)]  # noqa: RUF001


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
