from __future__ import annotations

import struct
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.tokenizer import Tokenizer, as_text, load_tokenizer
from unit.text.tiny_vocabulary import (
    CONTROL,
    CONTROLS,
    END,
    IM_END,
    IM_START,
    NORMAL,
    UNKNOWN,
    id_of,
    in_byte_code,
    metadata,
    string_array,
    tiny_metadata,
    tiny_tokenizer,
)

PRE_NAMES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "default")
MERGES = [(b"a", b"b"), (b" ", b"ab"), (b"\xc3", b"\xa9"), (b" ", b" "), (b"\n", b"\n")]
N_EXAMPLES = 60
FORGED = st.lists(st.sampled_from([*CONTROLS, "<|im_", "end|>", "<", "ab", " ", "é", "\n"])).map("".join)


@cache
def merging_tokenizer(pre: str) -> Tokenizer:
    return tiny_tokenizer(MERGES, pre=pre)


@pytest.mark.parametrize("pre", PRE_NAMES)
@given(text=st.one_of(st.text(), FORGED))
@settings(deadline=None, max_examples=N_EXAMPLES)
def test_tokenizer_gives_any_text_back_without_control_tokens(pre: str, text: str) -> None:
    tokenizer = merging_tokenizer(pre)
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    assert tokenizer.decode(ids) == text.encode()
    assert not any(tokenizer.is_control(each) for each in ids)


@pytest.mark.parametrize("pre", PRE_NAMES)
@given(data=st.binary())
@settings(deadline=None, max_examples=N_EXAMPLES)
def test_tokenizer_gives_any_bytes_back(pre: str, data: bytes) -> None:
    tokenizer = merging_tokenizer(pre)
    assert tokenizer.decode(tokenizer.encode(data, add_special=False, parse_special=True)) == data


@pytest.mark.parametrize("data", [b"\xe6\xad", b"\x80", b"\x00", b"\xff\xfe", b"a\xe6\xad b", b"\xf0\x9f\x98"])
def test_tokenizer_encodes_bytes_that_are_no_text(data: bytes) -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode(data, add_special=False, parse_special=False)
    assert ids == [id_of(tokenizer, bytes([each])) for each in data]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "a"), ("\udce6\udcad", "\udce6\udcad"), ("\udce6\udcad\udca3", "\u6b63"), ("\ud800x", "\ufffdx"), ("", "")],
)
def test_as_text_reads_surrogates_as_bytes_or_replaces_them(text: str, expected: str) -> None:
    assert as_text(text) == expected


def test_tokenizer_reads_control_tokens_where_it_is_told_to() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("<|im_start|>a<|im_end|>", add_special=False, parse_special=True)
    assert ids == [IM_START, id_of(tokenizer, b"a"), IM_END]


@pytest.mark.parametrize(
    ("settings_", "text", "head", "tail"),
    [
        ({}, "a", [], []),
        ({"add_bos_token": True}, "a", [IM_START], []),
        ({"add_bos_token": True}, "<|im_start|>a", [IM_START], []),
        ({"add_bos_token": True}, "<|im_start|><|im_start|>a", [IM_START], []),
        ({"add_bos_token": False}, "<|im_start|><|im_start|>a", [IM_START, IM_START], []),
        ({"add_eos_token": True}, "a", [], [IM_END]),
        ({"pre": "llama-bpe"}, "a", [IM_START], []),
        ({"pre": "llama-bpe", "add_bos_token": False}, "a", [], []),
    ],
)
def test_tokenizer_adds_one_begin_token(settings_: dict[str, Any], text: str, head: list[int], tail: list[int]) -> None:
    tokenizer = tiny_tokenizer(**settings_)
    expected = [*head, id_of(tokenizer, b"a"), *tail]
    assert tokenizer.encode(text, add_special=True, parse_special=True) == expected


def test_tokenizer_without_a_begin_token_adds_none() -> None:
    values = {key.removeprefix("tokenizer.ggml."): value for key, value in tiny_metadata().items()}
    del values["bos_token_id"]
    tokenizer = load_tokenizer(metadata(**values, add_bos_token=True))
    assert tokenizer.bos_id is None
    assert tokenizer.encode("", add_special=True, parse_special=True) == []


def test_tokenizer_says_what_it_is() -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.n_vocab == 259
    assert (tokenizer.bos_id, tokenizer.eos_id) == (IM_START, IM_END)
    assert tokenizer.end_ids == {END, IM_END}
    assert [tokenizer.is_control(each) for each in (0, 1, 2, 3)] == [True, True, True, False]
    assert tokenizer.token_bytes(IM_END) == b"<|im_end|>"
    assert sorted(tokenizer.control_texts()) == sorted(CONTROLS)


def few_bytes(unknown: int, **named: int) -> Tokenizer:
    """No token for H and i; id 0 ends a text, 1 is of the given type."""
    return load_tokenizer(
        metadata(
            model="gpt2",
            pre="gpt-2",
            tokens=string_array(["<|endoftext|>", "<unk>", "a", "b", "ab", in_byte_code(b" ")]),
            token_type=memoryview(struct.pack("<6i", CONTROL, unknown, *[NORMAL] * 4)).cast("i"),
            merges=string_array(["a b"]),
            eos_token_id=0,
            **named,
        )
    )


@pytest.mark.parametrize(
    ("unknown", "named", "text", "expected"),
    [
        (UNKNOWN, {}, "aHib", [2, 1, 1, 3]),
        (UNKNOWN, {"unknown_token_id": 0}, "ab HHab ab", [4, 5, 1, 1, 4, 5, 4]),
        (CONTROL, {"unknown_token_id": 1}, "Hab", [1, 4]),
        (UNKNOWN, {"unknown_token_id": 99}, "\xe9", [1, 1]),
        (UNKNOWN, {}, "", []),
        (NORMAL, {}, "aHib", [2, 3]),  # left out: there is nothing to say it with
        (NORMAL, {"unknown_token_id": 0}, "aHib", [2, 3]),  # text does not end a text
    ],
)
def test_tokenizer_reads_bytes_without_a_token_as_unknown(
    unknown: int, named: dict[str, int], text: str, expected: list[int]
) -> None:
    assert few_bytes(unknown, **named).encode(text, add_special=False, parse_special=False) == expected


def test_tokenizer_model_that_is_not_supported_is_named() -> None:
    supported = "supported are: gpt2, gemma4, llama"
    with pytest.raises(ValueError, match=rf"tokenizer model 'klingon' .* not supported; {supported}"):
        load_tokenizer(tiny_metadata(model="klingon"))


def test_tokenizer_unknown_pre_is_named() -> None:
    with pytest.raises(ValueError, match="unknown pre-tokenizer 'klingon'"):
        load_tokenizer(tiny_metadata(pre="klingon"))


@pytest.mark.parametrize("pre", PRE_NAMES)
@pytest.mark.parametrize("character", ["a", " ", ".", "\n", "7"])
@pytest.mark.timeout(10)
def test_tokenizer_takes_a_megabyte_of_one_character(pre: str, character: str) -> None:
    tokenizer = tiny_tokenizer([(character.encode(), character.encode()), (character.encode() * 2,) * 2], pre=pre)
    text = character * 1_000_000
    assert tokenizer.decode(tokenizer.encode(text, add_special=False, parse_special=True)) == text.encode()
