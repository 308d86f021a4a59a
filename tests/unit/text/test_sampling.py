from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.sampling import STEPS, SamplingError, SamplingParams
from emel.text.sampling_fields import Number

checked: Any = SamplingParams  # which takes more than its fields are typed for, and makes it that

KINDS = {each.name: each.metadata["kind"] for each in dataclasses.fields(SamplingParams)}
NUMBERS = sorted(name for name, kind in KINDS.items() if isinstance(kind, Number))


def test_sampling_defaults_are_the_published_ones() -> None:
    assert SamplingParams().effective() == {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "seed": None,
        "max_tokens": None,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "min_keep": 0,
        "repeat_penalty": 1.0,
        "repeat_last_n": 64,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        "logit_bias": [],
        "ignore_eos": False,
        "stop_token_ids": [],
        "min_tokens": 0,
        "n": 1,
        "logprobs": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, r"numbers from 0.0 to 100.0 \(0 is greedy\)"),
        ("temperature", math.nan, "numbers from 0.0"),
        ("temperature", math.inf, "numbers from 0.0"),
        ("temperature", "0.8", "numbers from 0.0"),
        ("temperature", None, "numbers from 0.0"),
        ("temperature", True, "numbers from 0.0"),
        ("top_k", -1, r"whole numbers from 0 to 2147483647 \(0 is off\)"),
        ("top_k", 2**31, "whole numbers from 0 to 2147483647"),
        ("top_k", 1.5, "whole numbers"),
        ("top_k", math.nan, "whole numbers"),
        ("top_k", 10**400, "whole numbers"),
        ("top_p", 1.01, r"numbers from 0.0 to 1.0 \(1 is off\)"),
        ("top_p", -0.0001, "numbers from 0.0 to 1.0"),
        ("top_p", math.nan, "numbers from 0.0 to 1.0"),
        ("min_p", 2, r"numbers from 0.0 to 1.0 \(0 is off\)"),
        ("min_p", [0.1], "numbers from 0.0 to 1.0"),
        ("seed", -1, r"whole numbers from 0 to 18446744073709551615 \(None is random\)"),
        ("seed", 2**64, "whole numbers from 0 to 18446744073709551615"),
        ("max_tokens", -1, r"whole numbers from 0 up \(None is until the end\)"),
        ("max_tokens", "all", "whole numbers from 0 up"),
        ("n", 0, "whole numbers from 1 to 256"),
        ("n", 257, "whole numbers from 1 to 256"),
        ("logprobs", 21, r"whole numbers from 0 to 20 \(None is off\)"),
        ("logprobs", -1, "whole numbers from 0 to 20"),
        ("mirostat", 3, "whole numbers from 0 to 2"),
        ("repeat_last_n", -2, r"whole numbers from -1 to 2147483647 \(0 is off, -1 is all\)"),
        ("repeat_penalty", 0, r"numbers from 0.01 to 100.0 \(1 is off\)"),
        ("presence_penalty", math.inf, "numbers from -100.0 to 100.0"),
        ("dry_base", 0.5, "numbers from 1.0 to 100.0"),
        ("min_tokens", None, "whole numbers from 0"),
        ("ignore_eos", 1, "True and False"),
        ("ignore_eos", "yes", "True and False"),
        ("samplers", "q", "a list of penalties, dry, .* or their letters as one text"),
        ("samplers", ["top_k", "top_k"], "a list of penalties"),
        ("samplers", ["top_k", "nope"], "a list of penalties"),
        ("samplers", ["k"], "a list of penalties"),
        ("samplers", "top_k;top-k", "a list of penalties"),
        ("samplers", 5, "a list of penalties"),
        ("samplers", {"top_k": 1}, "a list of penalties"),
        ("samplers", b"k", "a list of penalties"),
        ("dry_sequence_breakers", [""], "a list of at most 64 texts, each of 1 to 64 characters"),
        ("dry_sequence_breakers", ["a" * 65], "a list of at most 64 texts, each of 1 to 64 characters"),
        ("dry_sequence_breakers", ["a"] * 65, "a list of at most 64 texts, each of 1 to 64 characters"),
        ("dry_sequence_breakers", [5], "a list of at most 64 texts"),
        ("dry_sequence_breakers", b"x", "a list of at most 64 texts"),
        ("dry_sequence_breakers", None, "a list of at most 64 texts"),
        ("samplers", ";" * 257, "a list of penalties"),
        ("samplers", ["top_k"] * 257, "a list of penalties"),
        ("stop_token_ids", [1] * 65_537, "at most 65536 tokens: these are 65537"),
        ("logit_bias", dict.fromkeys(range(65_537), 1), "at most 65536"),
        ("stop_token_ids", [-1], "a list of token ids, whole numbers from 0 to 2147483647"),
        ("stop_token_ids", ["a"], "a list of token ids"),
        ("stop_token_ids", "12", "a list of token ids"),
        ("stop_token_ids", [2**31], "a list of token ids"),
        ("stop_token_ids", [True], "a list of token ids"),
        ("logit_bias", 5, r"token ids with a bias each \(an object, a dict\), or a list of"),
        ("logit_bias", "ab", "token ids with a bias each"),
        ("dry_breaker_ids", 5, "a list of lists of token ids"),
    ],
)
def test_sampling_names_field_value_and_range(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(SamplingError, match=rf"\A{name} is .*: allowed are {allowed}") as caught:
        SamplingParams(**{name: value})
    assert caught.value.name == name
    assert repr(value)[:120] in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0), ("temperature", 100), ("top_k", 0), ("top_k", 2**31 - 1), ("top_p", 0), ("top_p", 1),
        ("min_p", 0), ("min_p", 1), ("seed", 0), ("seed", 2**64 - 1), ("seed", None), ("max_tokens", 0),
        ("max_tokens", 10**12), ("max_tokens", None), ("temperature", Fraction(1, 2)), ("top_k", 5.0),
    ],
)  # fmt: skip
def test_sampling_takes_the_whole_range(name: str, value: Any) -> None:
    found = getattr(SamplingParams(**{name: value}), name)
    assert found == value
    kind = {"temperature": float, "top_p": float, "min_p": float}.get(name, int)
    assert value is None or type(found) is kind


def test_sampling_is_greedy_at_temperature_zero_or_next_to_it() -> None:
    assert SamplingParams(temperature=0).is_greedy
    assert SamplingParams(temperature=1e-50).is_greedy
    assert not SamplingParams(temperature=1e-6).is_greedy


def test_sampling_keeps_a_seed_and_fills_a_missing_one() -> None:
    assert SamplingParams(seed=7).with_seed(9).seed == 7
    assert SamplingParams(top_k=3).with_seed(9) == SamplingParams(top_k=3, seed=9)


def test_sampling_checks_what_is_replaced_and_cannot_be_changed() -> None:
    with pytest.raises(SamplingError, match="top_p is 2"):
        dataclasses.replace(SamplingParams(), top_p=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().top_p = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    "pair",
    [(1, math.nan), (1, math.inf), (1, True), (1, None), (1, "5"), (1, 1e7), (-1, 1), ("a", 1), (1.5, 1), (1,), 7],
)
def test_sampling_names_the_bias_that_is_wrong(pair: Any) -> None:
    with pytest.raises(
        SamplingError,
        match=r"\Alogit_bias is .*: allowed are token ids with a bias each \(an object, a dict\), or a list of",
    ):
        checked(logit_bias=[(0, 1.0), pair])


def test_sampling_adds_biases_of_one_token_up_and_echoes_never_as_false() -> None:
    params = checked(logit_bias=[(7, 1), [3, -2.5], (7, 0.5), (5, False), (5, 9)])
    assert params.logit_bias == ((3, -2.5), (5, -math.inf), (7, 1.5))
    assert params.effective()["logit_bias"] == [[3, -2.5], [5, False], [7, 1.5]]
    assert checked(logit_bias={7: -math.inf}).effective()["logit_bias"] == [[7, False]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("edskypmxt", STEPS),
        ("kt", ("top_k", "temperature")),
        ("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", STEPS),
        ("top-k; temp", ("top_k", "temperature")),
        ("temp", ("temperature",)),
        (["typical_p", "nucleus", "min-p"], ("typ_p", "top_p", "min_p")),
        ([], ()),
        ("", ()),
    ],
)
def test_sampling_takes_steps_by_name_and_by_letter(given: Any, expected: Any) -> None:
    assert SamplingParams(samplers=given).samplers == tuple(expected)


def test_sampling_takes_one_text_or_id_for_a_list() -> None:
    params = checked(dry_sequence_breakers="\n", stop_token_ids=5)
    assert (params.dry_sequence_breakers, params.stop_token_ids) == (("\n",), (5,))


def test_sampling_wants_no_more_tokens_at_least_than_at_most() -> None:
    assert SamplingParams(min_tokens=3, max_tokens=3).min_tokens == 3
    with pytest.raises(SamplingError, match="min_tokens is 4: allowed are whole numbers from 0 to max_tokens, 3"):
        SamplingParams(min_tokens=4, max_tokens=3)


@given(name=st.sampled_from(NUMBERS), value=st.one_of(st.floats(), st.integers(), st.none(), st.text(), st.booleans()))
def test_sampling_keeps_a_number_in_its_range_or_names_it(name: str, value: Any) -> None:
    kind = KINDS[name]
    try:
        kind.check(name, value)
    except SamplingError:
        with pytest.raises(SamplingError, match=rf"\A{name} is ") as caught:
            SamplingParams(**{name: value})
        assert str(caught.value).endswith(kind.allowed)
    else:
        kept = getattr(SamplingParams(**{name: value}), name)
        assert (kept is None and kind.may_be_none) or (kind.low <= kept <= kind.high and type(kept) is kind.kind)


def test_sampling_echoes_what_json_can_write() -> None:
    params = checked(logit_bias={1: False}, stop_token_ids=[3], samplers="kt", seed=2**64 - 1, logprobs=0)
    assert json.loads(json.dumps(params.effective(), allow_nan=False)) == params.effective()
    assert SamplingParams(**params.effective()) == params
