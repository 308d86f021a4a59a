from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.bench.statistics import summarize


def test_summary_of_odd_and_even_counts_has_the_middle() -> None:
    assert summarize([3.0, 1.0, 2.0]).median == 2.0
    assert summarize([4.0, 1.0, 2.0, 3.0]).median == 2.5


def test_summary_keeps_samples_in_order_and_knows_the_extremes() -> None:
    summary = summarize([3.0, 1.0, 2.0])
    assert summary.samples == (3.0, 1.0, 2.0)
    assert (summary.low, summary.high) == (1.0, 3.0)
    assert summary.spread == 0.5


def test_summary_of_one_sample_has_no_spread() -> None:
    assert summarize([7.0]).spread == 0.0


def test_summary_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample"):
        summarize([])


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_summary_of_an_impossible_sample_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        summarize([1.0, bad])


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_summary_median_lies_between_the_extremes(samples: list[float]) -> None:
    summary = summarize(samples)
    assert summary.low <= summary.median <= summary.high
    assert summary.spread >= 0
