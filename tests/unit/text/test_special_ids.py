from __future__ import annotations

import pytest

from emel.text.special_ids import find_special_ids
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import metadata, string_array


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
