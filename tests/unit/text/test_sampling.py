from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest

from emel.text.sampling import SamplingError, SamplingParams


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
