from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

import pytest

from emel.cli.sampling import NUMBERS, add_sampling, sampling_options
from emel.text.sampling import SamplingParams
from emel.text.sampling_fields import Number

# Fields without a flag: the answer's own flags stand for some, others have no meaning where text is written.
ELSEWHERE = {"max_tokens", "seed", "stop_token_ids", "n", "logprobs", "dry_breaker_ids"}
OTHERS = {"dry_sequence_breakers", "samplers", "logit_bias", "ignore_eos"}


def options(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_sampling(parser)
    return sampling_options(parser.parse_args(words))


def test_every_field_has_a_flag() -> None:
    named = {name for _, name, _, _ in NUMBERS}
    assert named | OTHERS | ELSEWHERE == {each.name for each in fields(SamplingParams)}
    assert len(named) == len(NUMBERS)


def test_nothing_given_is_nothing_said() -> None:
    assert options() == {}
    assert options("-n", "-1", "-s", "-1") == {}


@pytest.mark.parametrize(("flags", "name", "metavar", "text"), NUMBERS)
def test_numbers_go_from_end_to_end_of_their_range(flags: tuple[str, ...], name: str, metavar: str, text: str) -> None:
    kind = next(each.metadata["kind"] for each in fields(SamplingParams) if each.name == name)
    assert isinstance(kind, Number)
    assert metavar == ("N" if kind.kind is int else "X")
    for flag in flags:
        for value in (kind.low, kind.high):
            assert options(flag, str(value)) == {name: value}
            assert type(options(flag, str(value))[name]) is kind.kind
        for value in (kind.low - 1, kind.high + 1):
            with pytest.raises(argparse.ArgumentError, match=flag):
                options(flag, str(value))


def test_every_other_option_is_passed_on() -> None:
    words = [
        "--ignore-eos", "-l", "15+1.5", "-l", "7-inf", "--logit-bias", "3-2", "--samplers", "top-k;temp",
        "--dry-sequence-breaker", "\\n", "--dry-sequence-breaker", "a\\\\b", "--stop", "X", "-n", "5", "-s", "9",
    ]  # fmt: skip
    given = options(*words)
    assert given == {
        "ignore_eos": True,
        "logit_bias": [(15, 1.5), (7, False), (3, -2.0)],
        "samplers": ["top_k", "temperature"],
        "dry_sequence_breakers": ["\n", "a\\b"],
        "stop": ["X"],
        "max_tokens": 5,
        "seed": 9,
    }
    given.pop("stop")
    SamplingParams(**given)


def test_breakers_may_be_none_at_all_and_steps_letters() -> None:
    assert options("--dry-sequence-breaker", "none") == {"dry_sequence_breakers": []}
    assert options("--sampler-seq", "kt") == {"samplers": ["top_k", "temperature"]}
