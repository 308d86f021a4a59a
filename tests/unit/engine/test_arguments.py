from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.engine.arguments import (
    checked_count,
    checked_ids,
    checked_model,
    checked_prompt,
    checked_request,
    checked_sampling,
    checked_speculation,
    checked_switch,
    checked_template_variables,
    checked_text,
    checked_whole,
)
from emel.errors import RequestError
from emel.text.sampling import SamplingParams


@given(st.integers(-(2**64) + 1, 2**64 - 1))
def test_whole_numbers_are_taken_as_they_are(value: int) -> None:
    assert checked_whole(value, "n") == value


@pytest.mark.parametrize("value", [True, False, 1.0, "1", b"1", None, [], Fraction(1), np.float32(1), np.bool_(True)])
def test_other_values_are_no_whole_numbers(value: Any) -> None:
    with pytest.raises(RequestError, match=r"\An is .*: it must be a whole number\Z"):
        checked_whole(value, "n")


def test_numbers_of_numpy_become_plain() -> None:
    assert type(checked_whole(np.uint8(3), "n")) is int
    assert [type(each) for each in checked_ids(np.arange(3), 3)] == [int] * 3


def test_ids_may_be_none_at_all_but_not_for_a_prompt() -> None:
    assert checked_ids([], 5) == []
    with pytest.raises(RequestError, match="the prompt has no tokens"):
        checked_prompt([], 5, 10)
    assert checked_prompt(range(5), 5, 5) == [0, 1, 2, 3, 4]
    with pytest.raises(RequestError, match="the prompt has 6 tokens, the context holds 5") as caught:
        checked_prompt([1] * 6, 5, 5)
    assert caught.value.hint == "shorten it, or load with a larger context (n_ctx, -c)"


def test_texts_may_be_bytes() -> None:
    assert checked_text("a") == "a"
    assert checked_text(b"a") == b"a"
    with pytest.raises(RequestError, match=r"the prompt is bytearray\(b'a'\): it must be a str"):
        checked_text(bytearray(b"a"))


def test_sampling_without_keywords_is_the_defaults() -> None:
    params, stops = checked_sampling({})
    assert params == SamplingParams()
    assert stops == ()
    assert checked_sampling({"stop": None})[1] == ()
    assert checked_sampling({"stop": "ab"})[1] == ("ab",)
    assert checked_sampling({"stop": []})[1] == ()


@pytest.mark.parametrize("name", ["top_k", "seed", "max_tokens"])
def test_sampling_takes_no_floats_for_whole_numbers(name: str) -> None:
    for value in (1.0, np.float32(2), Fraction(3)):
        with pytest.raises(RequestError, match=rf"\A{name} is .*: it must be a whole number\Z"):
            checked_sampling({name: value})
    with pytest.raises(RequestError, match=f"{name} is 1.5: allowed are whole numbers from 0"):
        checked_sampling({name: 1.5})
    assert checked_sampling({name: np.int64(7)})[0].effective()[name] == 7
    assert checked_sampling({"temperature": 1})[0].temperature == 1.0


def test_models_are_named_by_text() -> None:
    assert checked_model("a") == "a"
    assert checked_model(Path("a") / "b") == str(Path("a") / "b")
    for value in (b"/path", None, 5):
        with pytest.raises(RequestError, match=r"\Athe model is .*: it must be a name or a path \(a str or pathlib"):
            checked_model(value)


def test_counts_are_whole_numbers_from_0() -> None:
    assert checked_count(0, "n") == 0
    with pytest.raises(RequestError, match=r"\An is -1: it must be 0 or more\Z"):
        checked_count(-1, "n")
    with pytest.raises(RequestError, match=r"n is 1\.0: it must be a whole number"):
        checked_count(1.0, "n")


def test_numbers_that_python_does_not_turn_into_text_are_refused() -> None:
    huge = 10**5000
    for value in (huge, -huge, 1 << 64):
        with pytest.raises(
            RequestError, match=r"\An is (a int too long to show|18446744073709551616): .* at most 64 bits"
        ):
            checked_whole(value, "n")
    for name in ("seed", "max_tokens", "temperature", "top_k", "stop", "logit_bias", "stop_token_ids", "samplers"):
        for wrong in (huge, -huge, [huge], {huge: 1.0}, {65: huge}):
            with pytest.raises(RequestError):
                checked_sampling({name: wrong})


def test_stop_strings_are_bounded_in_all() -> None:
    _, stops = checked_sampling({"stop": ["ab" * 500] * 131})
    assert len(stops) == 131
    with pytest.raises(RequestError, match=r"^stop has 132000 characters in 132 strings: at most 131072 are allowed$"):
        checked_sampling({"stop": ["ab" * 500] * 132})


@pytest.mark.parametrize("value", [None, 0, 1, "no", [], np.array([1, 2]), np.bool_(True)])
def test_switches_are_true_or_false(value: Any) -> None:
    assert checked_switch(True, "stream") is True
    with pytest.raises(RequestError, match=r"\Astream is .*: it must be True or False"):
        checked_switch(value, "stream")


@pytest.mark.parametrize("value", [None, 5, "think", b"a", [1], {1: 2}])
def test_shown_controls_are_several_texts(value: Any) -> None:
    assert checked_request({"shown_controls": ["a", "b"]})[2]["shown_controls"] == ("a", "b")
    with pytest.raises(RequestError, match=r"shown_controls is .*: it must be several texts"):
        checked_request({"shown_controls": value})


def test_template_variables_are_a_mapping_without_names_that_emel_sets() -> None:
    assert checked_template_variables(None) == {}
    assert checked_template_variables({"enable_thinking": False}) == {"enable_thinking": False}
    for value in (5, "a", [("a", 1)], {1: 2}):
        with pytest.raises(RequestError, match=r"chat_template_kwargs is .*: it must be a mapping of names") as caught:
            checked_template_variables(value)
        assert caught.value.hint == 'such as {"enable_thinking": False}'
    for name in ("messages", "tools", "now", "bos_token", "strftime_now", "add_generation_prompt", "_private"):
        with pytest.raises(RequestError, match=f"chat_template_kwargs cannot set '{name}': EMEL sets it"):
            checked_template_variables({name: 1})


def test_speculation_of_an_array_is_refused_as_others_are() -> None:
    with pytest.raises(RequestError, match=r"speculation is array\(\[1, 2\]\): it must be 'lookup', or None"):
        checked_speculation(np.array([1, 2]))
