"""The speculation suite: how much faster an answer is written with guesses than without, by what is written.

Each text is answered with and without, in turns, in one process; the two must be the same. What is timed are the tokens
after the first.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from emel.bench.options import add_measurement, add_model, add_output, count, model_path
from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from emel import Completion, Model
    from emel.bench.speculation_workloads import SpeculationWorkload


@dataclass(frozen=True, slots=True)
class SpeculationRun:
    """Tokens per second without and with guesses, and how many were made and came true."""

    plain: float
    guessing: float
    n_draft_tokens: int
    n_accepted_tokens: int

    @property
    def ratio(self) -> float:
        """How many times as fast with guesses."""
        return self.guessing / self.plain


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: all CPUs)")
    parser.add_argument("--tokens", type=count(2), default=192, metavar="N", help="tokens of an answer, at most (192)")
    add_measurement(parser, "pair")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    import emel
    from emel.bench.machine import counted, describe_machine, machine_line, n_cpus
    from emel.bench.speculation_workloads import WORKLOADS

    path = model_path(arguments)
    n_threads = arguments.threads or n_cpus()
    with emel.load(path, n_threads=n_threads) as model:
        results = {
            workload: [
                measure_pair(model, workload, arguments.tokens) for _ in range(arguments.warmup + arguments.runs)
            ][arguments.warmup :]
            for workload in WORKLOADS
        }
    machine = describe_machine()
    if arguments.json:
        report = {
            "suite": "speculation",
            "machine": machine,
            "model": path.name,
            "threads": n_threads,
            "tokens": arguments.tokens,
            "results": [_to_json(workload, runs) for workload, runs in results.items()],
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {path.name}, {counted(n_threads, 'thread')}, answers of at most {arguments.tokens} tokens\n"
        f"runs     median of {arguments.runs} pairs after {arguments.warmup} to warm up\n\n"
        f"{'text':<16} {'without':>14} {'with':>14} {'ratio':>7} {'guessed':>9} {'right':>7}  bar\n"
        + "".join(_line(workload, runs) for workload, runs in results.items())
    )
    return 0


def measure_pair(model: Model, workload: SpeculationWorkload, n_tokens: int) -> SpeculationRun:
    """The same answer without and with guesses; EmelError when they differ."""
    ids = workload.prompt_ids(model)[: model.n_ctx - n_tokens]

    def answer(*, speculate: bool) -> Completion:
        return model.generate_ids(ids, max_tokens=n_tokens, speculate=speculate, **workload.options)

    plain, guessing = answer(speculate=False), answer(speculate=True)
    if plain.token_ids != guessing.token_ids:
        raise EmelError(f"{workload.name}: the answer with guesses is another than without")
    if len(plain.token_ids) < 2:
        raise EmelError(f"{workload.name}: the model ends its answer at once, nothing can be timed")
    return SpeculationRun(
        plain.timings.decode_tokens_per_second,
        guessing.timings.decode_tokens_per_second,
        guessing.n_draft_tokens,
        guessing.n_accepted_tokens,
    )


def _medians(runs: Sequence[SpeculationRun]) -> tuple[float, float, float]:
    from emel.bench.statistics import summarize

    return (
        summarize([each.plain for each in runs]).median,
        summarize([each.guessing for each in runs]).median,
        summarize([each.ratio for each in runs]).median,
    )


def _line(workload: SpeculationWorkload, runs: Sequence[SpeculationRun]) -> str:
    plain, guessing, ratio = _medians(runs)
    bar = "" if workload.bar is None else f"{'within' if ratio >= workload.bar else 'under'} {workload.bar}"
    return (
        f"{workload.name:<16} {plain:>10.1f} t/s {guessing:>10.1f} t/s {ratio:>7.2f} "
        f"{runs[-1].n_draft_tokens:>9} {runs[-1].n_accepted_tokens:>7}  {bar}\n"
    )


def _to_json(workload: SpeculationWorkload, runs: Sequence[SpeculationRun]) -> dict[str, Any]:
    return {
        "text": workload.name,
        "bar": workload.bar,
        "ratio": _medians(runs)[2],
        "runs": [
            {
                "plain_tokens_per_second": each.plain,
                "guessing_tokens_per_second": each.guessing,
                "draft_tokens": each.n_draft_tokens,
                "accepted_tokens": each.n_accepted_tokens,
            }
            for each in runs
        ],
    }
