"""The wavefront suite: many sequences at once, all submitted together, each a prompt and an answer of the same length.

Each engine runs in a process of its own with the same file, threads and token ids; they take turns, run by run. Tokens
are the likeliest ones. The rate of decoding counts from when every sequence had its first token.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from dataclasses import field
from typing import TYPE_CHECKING, Any

from emel.bench.lane import EMEL, LLAMA_CPP
from emel.bench.statistics import summarize
from emel.bench.table import render_table
from emel.bench.wavefront_protocol import WaveLane, WaveTimes
from emel.bench.workload import prompt_ids
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from emel.bench.progress import Progress
    from emel.bench.protocol import Ready

MODULES = {EMEL: "emel.bench.wavefront_emel", LLAMA_CPP: "emel.bench.wavefront_llama_cpp"}


@dataclass(frozen=True, slots=True)
class WavePlan:
    """What to run."""

    model: Path
    n_threads: int
    sequences: Sequence[int]
    n_prompt: int
    n_decode: int
    n_runs: int
    n_warmup: int
    compare: bool
    activations: str = "int16"

    @property
    def engines(self) -> tuple[str, ...]:
        """Who takes turns, EMEL first."""
        return (EMEL, LLAMA_CPP) if self.compare else (EMEL,)

    def command(self, engine: str) -> list[str]:
        """The command line of an engine's process."""
        numbers = (self.n_threads, self.n_prompt + self.n_decode, max(self.sequences))
        options = [self.activations] if engine == EMEL else []
        return [sys.executable, "-m", MODULES[engine], str(self.model), *map(str, numbers), *options]

    def prompts(self, n_sequences: int, n_vocab: int) -> list[list[int]]:
        """Prompts that begin differently: no sequence may find another's work."""
        ids = prompt_ids(self.n_prompt * n_sequences, n_vocab)
        return [ids[at : at + self.n_prompt] for at in range(0, len(ids), self.n_prompt)]


@dataclass(slots=True)
class WaveRow:
    """One number of sequences with one engine: all runs."""

    engine: str
    n_sequences: int
    runs: list[WaveTimes] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Medians over runs of the rates; percentiles over all tokens of all runs, in milliseconds."""
        first = [seconds for run in self.runs for seconds in run.first_tokens]
        gaps = [seconds for run in self.runs for seconds in run.gaps] or [0.0]
        return {
            "decode_tokens_per_second": summarize([run.decode_rate for run in self.runs]).median,
            "total_tokens_per_second": summarize([run.total_rate for run in self.runs]).median,
            "first_token_ms_p50": 1e3 * statistics.median(first),
            "first_token_ms_p99": 1e3 * percentile(first, 0.99),
            "between_tokens_ms_p50": 1e3 * statistics.median(gaps),
            "between_tokens_ms_p99": 1e3 * percentile(gaps, 0.99),
        }


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that so large a share of them does not exceed."""
    ordered = sorted(samples)
    return ordered[min(max(-int(-share * len(ordered) // 1) - 1, 0), len(ordered) - 1)]


def run_waves(plan: WavePlan, progress: Progress) -> tuple[dict[str, Ready], list[WaveRow]]:
    """Runs the plan; LaneError when an engine fails."""
    rows: list[WaveRow] = []
    with ExitStack() as stack:
        lanes = {engine: stack.enter_context(WaveLane(engine, plan.command(engine))) for engine in plan.engines}
        ready = {engine: lane.ready for engine, lane in lanes.items()}
        for n_sequences in plan.sequences:
            added = {engine: WaveRow(engine, n_sequences) for engine in lanes}
            for turn in range(plan.n_warmup + plan.n_runs):
                for engine, lane in lanes.items():
                    progress.show(f"{n_sequences} sequences, {engine}: {turn + 1}/{plan.n_warmup + plan.n_runs}")
                    times = lane.generate(plan.prompts(n_sequences, ready[engine].n_vocab), plan.n_decode)
                    if turn >= plan.n_warmup:
                        added[engine].runs.append(times)
            rows += added.values()
    return ready, rows


def render_waves(rows: Sequence[WaveRow]) -> str:
    """A table: a line for each number of sequences and engine, its rate beside that of one sequence and llama.cpp's."""
    alone = {row.engine: row.figures()["decode_tokens_per_second"] for row in rows if row.n_sequences == 1}
    theirs = {row.n_sequences: row.figures()["decode_tokens_per_second"] for row in rows if row.engine == LLAMA_CPP}
    header = [
        "sequences",
        "engine",
        "decode tok/s",
        "of one",
        "ratio",
        "total tok/s",
        "first p50",
        "p99",
        "next p50",
        "p99",
    ]
    lines = []
    for row in rows:
        figures = row.figures()
        rate, total, *milliseconds = figures.values()
        one, other = alone.get(row.engine), theirs.get(row.n_sequences) if row.engine == EMEL else None
        lines.append(
            [
                str(row.n_sequences),
                row.engine,
                f"{rate:.0f}",
                f"{rate / one:.2f}x" if one else "",
                f"{rate / other:.2f}x" if other else "",
                f"{total:.0f}",
                *(f"{each:.1f} ms" for each in milliseconds),
            ]
        )
    return render_table(header, lines, n_left=2) + "\n"


def waves_to_json(rows: Sequence[WaveRow]) -> list[dict[str, Any]]:
    """Figures and every time of every run."""
    return [
        {
            "engine": row.engine,
            "sequences": row.n_sequences,
            **row.figures(),
            "times": [run.times for run in row.runs],
        }
        for row in rows
    ]
