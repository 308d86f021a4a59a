from __future__ import annotations

import pytest

from emel.gguf.entries import Entry
from emel.gguf.metadata import Metadata
from emel.gguf.values import ValueType
from emel.text.special_ids import find_special_ids, find_stripping_ids
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import CONTROL, metadata, string_array


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


def test_special_ids_that_only_some_models_end_with_need_the_type_control() -> None:
    texts = ["</s>", "a"]
    assert find_special_ids(metadata(), Vocabulary(string_array(texts), [4, 1])).ends == set()
    assert find_special_ids(metadata(), Vocabulary(string_array(texts), [CONTROL, 1])).ends == {0}


def test_special_ids_find_what_fills_in_the_middle_by_key_and_by_text() -> None:
    vocabulary = Vocabulary(string_array(["a", "<|fim_prefix|>", "<SUF>", "<MID>", "<|file_sep|>"]), None)
    found = find_special_ids(metadata(fim_pre_token_id=0), vocabulary)
    assert found.fim == {"prefix": 0, "suffix": 2, "middle": 3, "file": 4}
    assert found.ends == {4}
    assert find_special_ids(metadata(prefix_token_id=2), vocabulary).fim["prefix"] == 2


def test_special_ids_unknown_is_never_one_that_begins_or_ends_something() -> None:
    vocabulary = Vocabulary(string_array(["<s>", "<unk>", "a"]), [CONTROL, 2, 1])
    assert find_special_ids(metadata(unknown_token_id=0, bos_token_id=0), vocabulary).unknown == 1
    assert find_special_ids(metadata(unknown_token_id=2), vocabulary).unknown == 2


def test_special_ids_separator_has_the_misspelled_key_of_gguf() -> None:
    vocabulary = Vocabulary(string_array(["[CLS]", "[SEP]"]), None)
    found = find_special_ids(metadata(seperator_token_id=1, cls_token_id=0), vocabulary)
    assert (found.bos, found.sep) == (0, 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"pre": "jina-v2-de"}, (frozenset({3}), frozenset())),
        ({}, (frozenset(), frozenset())),
    ],
)
def test_stripping_ids_go_by_the_names_of_models(values: dict[str, str], expected: object) -> None:
    vocabulary = Vocabulary(string_array(["<s>", "<|user|>", "a", "<mask>"]), [CONTROL, CONTROL, 1, CONTROL])
    assert find_stripping_ids(metadata(**values), vocabulary) == expected


def test_stripping_ids_of_phi_3_are_all_but_the_oldest() -> None:
    vocabulary = Vocabulary(string_array(["<s>", "<|user|>", "a", "</s>"]), [CONTROL, CONTROL, 1, 4])
    name = Metadata({"general.name": Entry(ValueType.STRING, None, "Phi-3-mini")})
    assert find_stripping_ids(name, vocabulary) == (frozenset(), frozenset({1, 3}))
