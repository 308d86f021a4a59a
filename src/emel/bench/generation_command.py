"""The options of the generation suite, and what they start."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from emel.bench.options import (
    add_activations,
    add_measurement,
    add_model,
    add_output,
    add_threads,
    check_plot,
    count,
    counts,
    model_path,
    require,
)

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    add_threads(parser)
    group = parser.add_argument_group("workloads")
    group.add_argument(
        "--prefill", type=counts(1), default=(512, 2048, 4096), metavar="N,N", help="prompt lengths (512,2048,4096)"
    )
    group.add_argument("--decode", type=count(1), default=128, metavar="N", help="tokens to write (128)")
    group.add_argument(
        "--depth",
        type=counts(0),
        default=(0, 1024, 4096),
        metavar="N,N",
        help="tokens in the context before writing (0,1024,4096)",
    )
    group.add_argument(
        "--answer", type=counts(1), default=(1, 100), metavar="N,N", help="tokens of whole answers to a word (1,100)"
    )
    group.add_argument("--no-cold-start", action="store_true", help="leave out process start to first token")
    add_activations(group)
    group = add_measurement(parser, "workload")
    group.add_argument("--compare", action="store_true", help="run llama.cpp in turns with EMEL (needs emel[bench])")
    add_output(parser, has_plot=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    from emel.bench.decode_roof import decode_roof_of
    from emel.bench.generation import GenerationSuite, Plan
    from emel.bench.machine import describe_machine, n_cpus
    from emel.bench.progress import Progress
    from emel.bench.report import Report, render_text, to_json
    from emel.bench.workload import plan_workloads

    if arguments.compare:
        require("llama_cpp", "llama-cpp-python", "--compare")
    check_plot(arguments.plot)
    model = model_path(arguments)
    plan = Plan(
        model=model,
        workloads=plan_workloads(
            arguments.prefill,
            arguments.decode,
            arguments.depth,
            arguments.answer,
            cold_start=not arguments.no_cold_start,
        ),
        threads=arguments.threads or sorted({1, n_cpus()}),
        n_runs=arguments.runs,
        n_warmup=arguments.warmup,
        compare=arguments.compare,
        decode_roof=decode_roof_of(model),
        activations=arguments.activations,
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
