"""The suite `parallel_matmul`: products of 2048 x 2048 on several lanes against the same on one, taken in turns.

Their results must be equal bit for bit; a suite that finds a difference ends with an error. `--compare` adds EMEL
against llama.cpp end to end: llama-cpp-python has no matrix product of its own to call.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from emel.bench.options import add_measurement, add_model, add_output, counts, model_path, multiple_of_256, require
from emel.errors import EmelError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from emel.bench.figures import Figure
    from emel.bench.matmul import Product
    from emel.bench.progress import Progress
    from emel.bench.report import Report
    from emel.bench.statistics import Summary
    from emel.kernel.pool import LanePool

SIZE = 2048


class Shape(NamedTuple):
    """A product's kind, format and number of tokens."""

    kind: str
    format: str
    n_tokens: int

    def __str__(self) -> str:
        return f"{self.kind} {self.format.lower()}"


# fmt: off
SHAPES = (
    Shape("gemv", "F32", 1), Shape("gemv", "Q8_0", 1), Shape("gemv", "Q4_K", 1), Shape("gemv", "Q6_K", 1),
    Shape("gemm8", "F32", 8),
)
# fmt: on
SAMPLE_SECONDS = 0.02
END_TO_END_PREFILL, END_TO_END_DECODE = 8, 32
NO_MATMUL = (
    f"llama-cpp-python has no matrix product to call, so llama.cpp is compared end to end: a prompt of "
    f"{END_TO_END_PREFILL} tokens\n(products of {END_TO_END_PREFILL} rows) and {END_TO_END_DECODE} tokens of text "
    f"(products of one)."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("-t", "--threads", type=counts(1), metavar="N,N", help="lanes (default: all CPUs)")
    parser.add_argument(
        "--size", type=multiple_of_256, default=SIZE, metavar="N", help=f"rows and columns, a multiple of 256 ({SIZE})"
    )
    group = add_measurement(parser, "product")
    group.add_argument("--compare", action="store_true", help="also EMEL and llama.cpp end to end (needs emel[bench])")
    add_model(group, "for --compare: ")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Measures every shape and prints the figures. EmelError for what a person can put right."""
    from emel.bench.figures import Column, FigureReport, figures_to_json, render_figures
    from emel.bench.machine import choose_lanes, counted, n_cpus, open_route
    from emel.bench.progress import Progress
    from emel.bench.report import render_text, to_json
    from emel.kernel.pool import LanePool

    if arguments.compare:
        require("llama_cpp", "llama-cpp-python", "--compare")
    elif arguments.model is not None:
        raise EmelError("--model is for --compare; the products themselves need no model")
    lanes = choose_lanes(arguments.threads or (n_cpus(),))
    columns = {"ratio": Column("to serial", "{:.2f}x")}
    report = FigureReport("parallel_matmul", open_route().name, arguments.warmup, arguments.runs, columns)
    report.notes.append("the results of all lane counts are equal, bit for bit")
    progress, end_to_end = Progress(), None
    try:
        with LanePool(1) as serial:
            for n_lanes in lanes:
                with LanePool(n_lanes) as pool:
                    for shape in SHAPES:
                        progress.show(f"{shape}, {counted(n_lanes, 'thread')}")
                        report.figures += _measure_shape(serial, pool, shape, arguments)
        if arguments.compare:
            end_to_end = _compare(arguments, lanes, progress)
    finally:
        progress.clear()
    if arguments.json:
        compared = to_json(end_to_end) if end_to_end else None
        sys.stdout.write(json.dumps({**figures_to_json(report), "end_to_end": compared}, indent=2) + "\n")
    else:
        sys.stdout.write(render_figures(report))
        if end_to_end:
            sys.stdout.write(f"\n{NO_MATMUL}\n\n{render_text(end_to_end)}")
    return 0


def _measure_shape(serial: LanePool, pool: LanePool, shape: Shape, arguments: argparse.Namespace) -> Iterator[Figure]:
    from emel.bench.figures import Figure
    from emel.bench.matmul import RandomMatrix
    from emel.tensor.types import TensorType

    size = arguments.size
    with (
        RandomMatrix(serial, TensorType[shape.format], size, size) as matrix,
        matrix.product(rows=size, n_tokens=shape.n_tokens) as alone,
        matrix.product(rows=size, n_tokens=shape.n_tokens, pool=pool) as shared,
    ):
        rates = _take_turns({"serial": alone, "lanes": shared}, arguments.runs, arguments.warmup)
        if alone.bits() != shared.bits():
            raise EmelError(f"{shape}: {pool.n_lanes} lanes gave other bits than one", hint="this is a bug: report it")
        for kind, rate in rates.items():
            n_threads = 1 if kind == "serial" else pool.n_lanes
            labels: dict[str, str | int] = {"test": str(shape), "kind": kind, "threads": n_threads}
            yield Figure(labels, "G multiply-adds/s", rate, {"ratio": rate.median / rates["serial"].median})


def _take_turns(products: Mapping[str, Product], n_runs: int, n_warmup: int) -> dict[str, Summary]:
    from emel.bench.statistics import summarize

    n_calls = {name: product.count_calls(SAMPLE_SECONDS) for name, product in products.items()}
    samples: dict[str, list[float]] = {name: [] for name in products}
    for turn in range(-n_warmup, n_runs):
        for name, product in products.items():
            seconds = product.time_calls(n_calls[name])
            if turn >= 0:
                samples[name].append(product.n_multiply_adds * n_calls[name] / seconds / 1e9)
    return {name: summarize(taken) for name, taken in samples.items()}


def _compare(arguments: argparse.Namespace, threads: Sequence[int], progress: Progress) -> Report:
    """EMEL and llama.cpp in turns: prompts of eight tokens and one token at a time."""
    from emel.bench.generation import GenerationSuite, Plan
    from emel.bench.machine import describe_machine
    from emel.bench.report import Report
    from emel.bench.workload import plan_workloads

    model = model_path(arguments)
    workloads = plan_workloads((END_TO_END_PREFILL,), END_TO_END_DECODE, (0,), (), cold_start=False)
    plan = Plan(model, workloads, threads, arguments.runs, arguments.warmup, compare=True)
    report = Report(describe_machine(), model.name, model.stat().st_size, arguments.warmup, arguments.runs)
    GenerationSuite(plan, report, progress).run()
    return report
