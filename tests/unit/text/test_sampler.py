from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any

import pytest

from emel.kernel.buffers import address_of
from emel.text.sampler import Sampler
from emel.text.sampling import SamplingParams


class OneRow:
    """A batch whose only output has these logits."""

    def __init__(self, *logits: float) -> None:
        self._logits = array("f", logits)
        self.argmax = [max(range(len(logits)), key=lambda index: (logits[index], -index))]

    def logits_address(self, output: int) -> int:
        assert output == 0
        return address_of(self._logits)


def draws(batch: Any, n: int = 400, **params: Any) -> list[int]:
    sampler = Sampler(SamplingParams(**({"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1} | params)), 4)
    return [sampler.choose(batch, 0, position) for position in range(n)]


ROW = OneRow(0.0, 1.0, 2.0, -1.0)


def test_greedy_takes_the_likeliest_and_needs_no_seed() -> None:
    assert set(draws(ROW, temperature=0)) == {2}
    assert set(draws(ROW, temperature=1e-9, seed=5)) == {2}
    assert set(draws(OneRow(1.0, 3.0, 3.0, 0.0), temperature=0)) == {1}


def test_draws_depend_on_seed_and_position_alone() -> None:
    first = draws(ROW, seed=1)
    assert draws(ROW, seed=1) == first
    assert draws(ROW, seed=2) != first
    sampler = Sampler(SamplingParams(top_k=0, top_p=1, min_p=0, temperature=1, seed=1), 4)
    batch: Any = ROW
    assert [sampler.choose(batch, 0, position) for position in (7, 3, 7)] == [first[7], first[3], first[7]]


def test_draws_follow_the_softmax() -> None:
    counts = Counter(draws(ROW, n=4000, seed=3))
    weights = [math.exp(each) for each in (0, 1, 2, -1)]
    for token, weight in enumerate(weights):
        assert counts[token] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 2}, {1, 2}),
        ({"top_k": 0, "temperature": 50}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {2}),
        ({"top_p": 0.7}, {1, 2}),
        ({"min_p": 1.0}, {2}),
        ({"min_p": 0.2}, {1, 2}),
        ({"min_p": 0.1}, {0, 1, 2}),
    ],
)
def test_draws_stay_among_what_the_parameters_leave(params: dict[str, Any], tokens: set[int]) -> None:
    assert set(draws(ROW, seed=9, **params)) == tokens


def test_sampler_that_is_not_greedy_needs_its_seed() -> None:
    with pytest.raises(AssertionError):
        Sampler(SamplingParams(temperature=1), 4)
