"""The generation suite: how fast a prompt is read, how fast text is written, and how soon the first token is there.

Each engine runs in a process of its own with the same file, threads, token ids and lengths. They take turns, run by
run (A B A B), so that a machine that slows down slows both. Tokenisation and the making of text are left out; decoding
feeds each step's likeliest token.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from emel.bench.lane import EMEL, LLAMA_CPP, Lane, cold_start, lane_command
from emel.bench.machine import counted
from emel.bench.report import Row
from emel.bench.statistics import summarize
from emel.bench.workload import prompt_ids
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from emel.bench.decode_roof import DecodeRoof
    from emel.bench.progress import Progress
    from emel.bench.report import Report
    from emel.bench.workload import Workload

T = TypeVar("T")

READ_ROOF = "read roof"
"""Takes turns with the engines where they decode."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    model: Path
    workloads: Sequence[Workload]
    threads: Sequence[int]
    n_runs: int
    n_warmup: int
    compare: bool
    decode_roof: DecodeRoof | None = None
    activations: str = "int16"

    @property
    def engines(self) -> tuple[str, ...]:
        """Who takes turns, EMEL first."""
        return (EMEL, LLAMA_CPP) if self.compare else (EMEL,)

    def commands(self, n_threads: int) -> dict[str, list[str]]:
        """The command line of each engine's process; the context fits the longest workload and no more."""
        n_ctx = max(workload.n_ctx for workload in self.workloads)
        options = {EMEL: [self.activations]}
        return {
            engine: lane_command(engine, self.model, n_threads, n_ctx, options.get(engine, ()))
            for engine in self.engines
        }


class GenerationSuite:
    """Runs a plan once, and adds what it finds to a report."""

    def __init__(self, plan: Plan, report: Report, progress: Progress) -> None:
        self._plan, self._report, self._progress = plan, report, progress

    def run(self) -> None:
        """Runs every workload at every thread count. LaneError when an engine fails."""
        for n_threads in self._plan.threads:
            commands = self._plan.commands(n_threads)
            self._run_warm(n_threads, commands)
            self._run_cold(n_threads, commands)

    def _run_warm(self, n_threads: int, commands: dict[str, list[str]]) -> None:
        with ExitStack() as stack:
            lanes = {engine: stack.enter_context(Lane(engine, command)) for engine, command in commands.items()}
            self._progress.show(f"loading with {counted(n_threads, 'thread')}")
            self._report.engines.update((engine, lane.ready) for engine, lane in lanes.items())
            for workload in self._plan.workloads:
                if workload.kind != "cold start":
                    runs = {engine: _measurement(lane, workload) for engine, lane in lanes.items()}
                    if workload.kind == "decode" and self._plan.decode_roof is not None:
                        runs[READ_ROOF] = partial(self._plan.decode_roof.measure, n_threads)
                    self._add_row(workload, n_threads, self._take_turns(workload.name, n_threads, runs))

    def _run_cold(self, n_threads: int, commands: dict[str, list[str]]) -> None:
        # With the warm lanes gone: a cold start should not share the machine with them.
        n_vocab = min(ready.n_vocab for ready in self._report.engines.values())
        for workload in self._plan.workloads:
            if workload.kind == "cold start":
                token_ids = prompt_ids(workload.n_prompt, n_vocab)
                runs = {engine: partial(cold_start, engine, command, token_ids) for engine, command in commands.items()}
                starts = self._take_turns(workload.name, n_threads, runs)
                seconds = {engine: [start.seconds for start in taken] for engine, taken in starts.items()}
                self._add_row(workload, n_threads, seconds)
                ready = {engine: [start.ready_seconds for start in taken] for engine, taken in starts.items()}
                self._add_row(replace(workload, kind="cold start ready"), n_threads, ready)
                peaks = {engine: [start.peak_bytes / 1e6 for start in taken] for engine, taken in starts.items()}
                if all(min(taken) > 0 for taken in peaks.values()):
                    self._add_row(replace(workload, kind="cold start peak"), n_threads, peaks)

    def _take_turns(self, name: str, n_threads: int, runs: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        samples: dict[str, list[T]] = {engine: [] for engine in runs}
        n_turns = self._plan.n_warmup + self._plan.n_runs
        for turn in range(n_turns):
            for engine, run in runs.items():
                self._progress.show(f"{name}, {counted(n_threads, 'thread')}, {engine}: {turn + 1}/{n_turns}")
                sample = run()
                if turn >= self._plan.n_warmup:
                    samples[engine].append(sample)
        return samples

    def _add_row(self, workload: Workload, n_threads: int, samples: Mapping[str, Sequence[float]]) -> None:
        summaries = {engine: summarize(taken) for engine, taken in samples.items()}
        roof, roof_share = summaries.pop(READ_ROOF, None), None
        if roof is not None and self._plan.decode_roof is not None:
            roof_share = self._plan.decode_roof.share(summaries[EMEL].median, roof.median)
        self._report.rows.append(Row(workload, n_threads, summaries, roof.median if roof else None, roof_share))


def _measurement(lane: Lane, workload: Workload) -> Callable[[], float]:
    token_ids = prompt_ids(workload.n_prompt, lane.ready.n_vocab)
    return lambda: workload.result(lane.measure(token_ids, workload.n_decode))
