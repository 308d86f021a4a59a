from __future__ import annotations

import pytest

from emel.bench.sm_timing import N_BLOCKS, Bar, Line, calls_of, lines_to_json, measure, render_lines
from emel.bench.statistics import summarize


def test_subjects_are_measured_in_turns_and_compared_with_the_first() -> None:
    log: list[str] = []

    def subject(name: str, seconds: float):  # type: ignore[no-untyped-def]
        def timed(n_calls: int) -> float:
            log.append(name)
            assert n_calls >= 1
            return seconds

        return timed

    lines = measure("flip", {"ours": subject("ours", 1e-6), "theirs": subject("theirs", 12e-6)}, n_runs=3, n_warmup=1)
    assert [(line.test, line.subject, line.ratio) for line in lines] == [("flip", "ours", 1.0), ("flip", "theirs", 12)]
    assert all(len(line.summary.samples) == 3 for line in lines)
    rounds = log[4:]  # after two looks at each to choose the number of calls
    assert len(rounds) == 2 * N_BLOCKS * 4
    pairs = [tuple(rounds[at : at + 2]) for at in range(0, len(rounds), 2)]
    assert {frozenset(pair) for pair in pairs} == {frozenset({"ours", "theirs"})}
    assert len(set(pairs)) == 2  # in both orders


def test_block_lasts_about_a_millisecond_whatever_a_call_takes() -> None:
    asked: list[int] = []

    def timed(n_calls: int) -> float:
        asked.append(n_calls)
        return 1e-5

    measure("flip", {"ours": timed}, n_runs=1, n_warmup=0)
    assert asked[:2] == [1, 100]
    assert set(asked[2:]) == {100}


def test_calls_are_timed_one_by_one() -> None:
    calls: list[object] = []
    assert 0 < calls_of(calls.append, "x")(5) < 1
    assert calls == ["x"] * 5


@pytest.mark.parametrize(
    ("bar", "text", "seconds", "ratio", "is_met"),
    [
        (Bar(), "", 1e9, 1e9, True),
        (Bar(at_most_seconds=1.5e-6), "at most 1.5 us", 1.5e-6, 9, True),
        (Bar(at_most_seconds=1.5e-6), "at most 1.5 us", 1.6e-6, 0, False),
        (Bar(at_most_ratio=1.1), "at most 1.1x", 1, 1.1, True),
        (Bar(at_most_ratio=1.1), "at most 1.1x", 1, 1.11, False),
        (Bar(at_least_ratio=10), "at least 10x", 1, 10, True),
        (Bar(at_least_ratio=10), "at least 10x", 1, 9.9, False),
        (Bar(1e-6, 2, 1), "at most 1 us, at most 2x, at least 1x", 1e-6, 1.5, True),
    ],
)
def test_bar_says_what_it_asks_and_whether_it_is_met(
    bar: Bar, text: str, seconds: float, ratio: float, is_met: bool
) -> None:
    assert str(bar) == text
    assert bar.is_met(seconds, ratio) is is_met


def test_lines_are_shown_as_a_table_and_as_json() -> None:
    ours, theirs = summarize([2e-7, 2e-7]), summarize([1e-6])
    lines = [Line("flip", "ours", ours, 1.0), Line("flip", "theirs", theirs, 5.0, Bar(at_least_ratio=10))]
    first, second = render_lines(lines).splitlines()[2:]
    assert first.split() == ["flip", "ours", "0.200", "0.0%", "1.00x"]
    assert second.endswith("5.00x  at least 10x: MISSED")
    assert lines_to_json(lines)[1] == {
        "test": "flip",
        "subject": "theirs",
        "unit": "s",
        "median": 1e-6,
        "samples": [1e-6],
        "ratio": 5.0,
        "bar": "at least 10x",
        "met": False,
    }
