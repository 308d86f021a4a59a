"""How the machine suites measure: subjects in turns, in blocks of a millisecond; and what they report.

A block of every subject, then the next block of every subject, each time in another order: whatever slows the machine
slows them alike, also when it comes and goes in step with the blocks. The sample of a run is the median of its blocks.
"""

from __future__ import annotations

import random
import statistics
from itertools import repeat
from time import perf_counter
from typing import TYPE_CHECKING, Any

from emel.bench.statistics import summarize
from emel.bench.table import render_table
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emel.bench.statistics import Summary

    Timed = Callable[[int], float]  # makes that many calls and returns seconds per call

N_BLOCKS = 100
BLOCK_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure is held to: seconds, or the ratio to the first subject of its test; None where nothing is asked."""

    at_most_seconds: float | None = None
    at_most_ratio: float | None = None
    at_least_ratio: float | None = None

    def is_met(self, seconds: float, ratio: float) -> bool:
        """Whether a median and its ratio pass."""
        return (
            (self.at_most_seconds is None or seconds <= self.at_most_seconds)
            and (self.at_most_ratio is None or ratio <= self.at_most_ratio)
            and (self.at_least_ratio is None or ratio >= self.at_least_ratio)
        )

    def __str__(self) -> str:
        parts = []
        if self.at_most_seconds is not None:
            parts.append(f"at most {self.at_most_seconds * 1e6:g} us")
        if self.at_most_ratio is not None:
            parts.append(f"at most {self.at_most_ratio:g}x")
        if self.at_least_ratio is not None:
            parts.append(f"at least {self.at_least_ratio:g}x")
        return ", ".join(parts)


NO_BAR = Bar()


@dataclass(frozen=True, slots=True)
class Line:
    """One subject of one test; `ratio` is its median time over that of the test's first subject."""

    test: str
    subject: str
    summary: Summary
    ratio: float
    bar: Bar = NO_BAR

    @property
    def is_met(self) -> bool:
        """Whether the bar is met; True without one."""
        return self.bar.is_met(self.summary.median, self.ratio)


def calls_of(call: Callable[[Any], object], argument: object) -> Timed:
    """Times `call(argument)` with as little around it as a loop of Python allows."""

    def timed(n_calls: int) -> float:
        begin = perf_counter()
        for _ in repeat(None, n_calls):
            call(argument)
        return (perf_counter() - begin) / n_calls

    return timed


def measure(
    test: str, subjects: Mapping[str, Timed], n_runs: int, n_warmup: int, bars: Mapping[str, Bar] | None = None
) -> list[Line]:
    """Runs all subjects in turns; a line for each, in their order."""
    n_calls = {name: max(1, int(BLOCK_SECONDS / timed(1))) for name, timed in subjects.items()}
    n_calls = {name: max(1, int(BLOCK_SECONDS / timed(n_calls[name]))) for name, timed in subjects.items()}
    names, order = list(subjects), random.Random(0)  # noqa: S311
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for run_index in range(-n_warmup, n_runs):
        blocks: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(N_BLOCKS):
            for name in order.sample(names, len(names)):
                blocks[name].append(subjects[name](n_calls[name]))
        if run_index >= 0:
            for name, seconds in blocks.items():
                samples[name].append(statistics.median(seconds))
    summaries = {name: summarize(seconds) for name, seconds in samples.items()}
    base = next(iter(summaries.values())).median
    return [
        Line(test, name, summary, summary.median / base, (bars or {}).get(name, NO_BAR))
        for name, summary in summaries.items()
    ]


def render_lines(lines: Sequence[Line]) -> str:
    """The table, ending in a newline."""
    cells = []
    for line in lines:
        bar = "" if line.bar == NO_BAR else f"{line.bar}: {'met' if line.is_met else 'MISSED'}"
        median, spread = f"{line.summary.median * 1e6:.3f}", f"{line.summary.spread:.1%}"
        cells.append([line.test, line.subject, median, spread, f"{line.ratio:.2f}x", bar])
    return render_table(["test", "subject", "us", "±", "ratio", "bar"], cells, n_left=2) + "\n"


def lines_to_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The same as plain dictionaries, with every sample, in seconds."""
    return [
        {
            "test": line.test,
            "subject": line.subject,
            "unit": "s",
            "median": line.summary.median,
            "samples": list(line.summary.samples),
            "ratio": line.ratio,
            "bar": str(line.bar) or None,
            "met": line.is_met,
        }
        for line in lines
    ]
