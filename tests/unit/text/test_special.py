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


def test_partition_strips_white_space_beside_tokens_that_swallow_it() -> None:
    vocabulary = Vocabulary(string_array(["<l>", "<r>"]), [CONTROL, CONTROL])
    pattern = SpecialPattern(vocabulary, (CONTROL,), strips_left=frozenset({0}), strips_right=frozenset({1}))
    assert list(pattern.partition("a \n<l> b <r>\t c ")) == [("a", 0), (" b ", 1), ("c ", None)]
    assert list(pattern.partition("<r> <l>")) == [("", 1), ("", 0), ("", None)]


def test_partition_keeps_bytes_that_are_no_text() -> None:
    assert list(pattern_of("<a>").partition("\udcff<a>\udce6")) == [("\udcff", 0), ("\udce6", None)]


def test_partition_finds_more_tokens_than_it_asks_for_at_a_time() -> None:
    found = list(pattern_of("<a>").partition("x<a>" * 200))
    assert found == [("x", 0)] * 200 + [("", None)]


def test_partition_of_thousands_of_tokens_is_quick() -> None:
    texts = [f"<unused{index}>" for index in range(6000)]
    pattern = pattern_of(*texts)
    assert list(pattern.partition("<unused59990<unused5999>")) == [("<unused59990", 5999), ("", None)]
    assert "".join(fragment for fragment, _ in pattern.partition("<unused" * 100_000)) == "<unused" * 100_000
