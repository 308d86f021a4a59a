"""The options of `emel bench`, and what they start."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from emel.errors import EmelError

if TYPE_CHECKING:
    from collections.abc import Callable

SUITES = ("generation",)
INSTALL_HINT = "install it with: pip install 'emel[bench]' (llama-cpp-python is compiled, which takes some minutes)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("suite", choices=SUITES, metavar="SUITE", help=f"what to measure: {', '.join(SUITES)}")
    parser.add_argument("-m", "--model", metavar="MODEL", help="a .gguf file or a known name")
    parser.add_argument(
        "-t",
        "--threads",
        type=_counts(1),
        metavar="N,N",
        help="thread counts (default: 1 and all CPUs)",
    )
    group = parser.add_argument_group("workloads")
    group.add_argument(
        "--prefill", type=_counts(1), default=(512,), metavar="N,N", help="prompt lengths, such as 512,2048,4096 (512)"
    )
    group.add_argument("--decode", type=_count(1), default=128, metavar="N", help="tokens to write (128)")
    group.add_argument(
        "--depth",
        type=_counts(0),
        default=(0, 1024, 4096),
        metavar="N,N",
        help="tokens in the context before writing (0,1024,4096)",
    )
    group.add_argument("--no-cold-start", action="store_true", help="leave out process start to first token")
    group = parser.add_argument_group("measurement")
    group.add_argument("--runs", type=_count(1), default=5, metavar="N", help="runs of each workload (5)")
    group.add_argument("--warmup", type=_count(0), default=1, metavar="N", help="runs before those, not counted (1)")
    group.add_argument("--compare", action="store_true", help="run llama.cpp in turns with EMEL (needs emel[bench])")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print JSON with every sample, not a table")
    group.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results (needs emel[bench])")


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen suite and prints its results on stdout. EmelError for what a person can put right."""
    from emel.bench.generation import GenerationSuite, Plan
    from emel.bench.machine import describe_machine, n_cpus
    from emel.bench.progress import Progress
    from emel.bench.report import Report, render_text, to_json
    from emel.bench.workload import plan_workloads
    from emel.engine.models import DEFAULT_MODEL, resolve_model

    if arguments.compare:
        _require("llama_cpp", "llama-cpp-python", "--compare")
    if arguments.plot is not None:
        _require("matplotlib", "matplotlib", "--plot")
        if not arguments.plot.parent.is_dir():
            raise EmelError(f"--plot: there is no folder {str(arguments.plot.parent)!r}")
    model = resolve_model(arguments.model or DEFAULT_MODEL)
    plan = Plan(
        model=model,
        workloads=plan_workloads(
            arguments.prefill, arguments.decode, arguments.depth, cold_start=not arguments.no_cold_start
        ),
        threads=arguments.threads or sorted({1, n_cpus()}),
        n_runs=arguments.runs,
        n_warmup=arguments.warmup,
        compare=arguments.compare,
    )
    report = Report(describe_machine(), model.name, model.stat().st_size, arguments.warmup, arguments.runs)
    progress = Progress()
    try:
        GenerationSuite(plan, report, progress).run()
    finally:
        progress.clear()
    sys.stdout.write(json.dumps(to_json(report), indent=2) + "\n" if arguments.json else render_text(report))
    if arguments.plot is not None:
        from emel.bench.plot import save_plot

        save_plot(report, arguments.plot)
    return 0


def _require(module: str, package: str, flag: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise EmelError(f"{flag} needs {package}, which is not installed", hint=INSTALL_HINT)


def _count(lowest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}")
        return value

    return parse


def _counts(lowest: int) -> Callable[[str], tuple[int, ...]]:
    """Whole numbers separated by commas, each once, in the order given."""
    parse_one = _count(lowest)

    def parse(text: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(parse_one(part.strip()) for part in text.split(",")))

    return parse
