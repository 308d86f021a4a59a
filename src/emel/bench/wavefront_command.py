"""The options of the wavefront suite, and what they start."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from emel.bench.options import (
    add_activations,
    add_measurement,
    add_model,
    add_output,
    count,
    counts,
    model_path,
    require,
)

if TYPE_CHECKING:
    import argparse

    from emel.bench.wavefront import WavePlan


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: all CPUs)")
    group = parser.add_argument_group("workloads")
    group.add_argument(
        "--sequences",
        type=counts(1),
        default=(1, 2, 4, 8, 16, 32),
        metavar="N,N",
        help="how many at once (1,2,4,8,16,32)",
    )
    group.add_argument("--prompt", type=count(1), default=64, metavar="N", help="tokens of each prompt (64)")
    group.add_argument("--decode", type=count(2), default=64, metavar="N", help="tokens of each answer (64)")
    add_activations(group)
    group = add_measurement(parser, "wave")
    group.add_argument("--operations", action="store_true", help="where a step of EMEL goes, by kind of operation")
    group.add_argument("--compare", action="store_true", help="run llama.cpp in turns with EMEL (needs emel[bench])")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    from dataclasses import asdict

    from emel.bench.machine import counted, describe_machine, machine_line, n_cpus
    from emel.bench.progress import Progress
    from emel.bench.wavefront import WavePlan, render_waves, run_waves, waves_to_json

    if arguments.compare:
        require("llama_cpp", "llama-cpp-python", "--compare")
    plan = WavePlan(
        model=model_path(arguments),
        n_threads=arguments.threads or n_cpus(),
        sequences=arguments.sequences,
        n_prompt=arguments.prompt,
        n_decode=arguments.decode,
        n_runs=arguments.runs,
        n_warmup=arguments.warmup,
        compare=arguments.compare,
        activations=arguments.activations,
    )
    if arguments.operations:
        return _show_operations(plan, as_json=arguments.json)
    progress = Progress()
    try:
        ready, rows = run_waves(plan, progress)
    finally:
        progress.clear()
    machine = describe_machine()
    if arguments.json:
        engines = {engine: asdict(each) for engine, each in ready.items()}
        report = {"suite": "wavefront", "machine": machine, "engines": engines, "results": waves_to_json(rows)}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {plan.model.name}, {counted(plan.n_threads, 'thread')}; "
        f"{plan.n_prompt} tokens in, {plan.n_decode} out\n"
        + "".join(f"engine   {each.engine}: {each.version}; {each.route}\n" for each in ready.values())
        + f"runs     median of {plan.n_runs} after {plan.n_warmup} to warm up; percentiles over all tokens\n\n"
        + render_waves(rows)
    )
    return 0


def _show_operations(plan: WavePlan, *, as_json: bool) -> int:
    from dataclasses import asdict

    from emel.bench.machine import counted
    from emel.bench.wavefront_operations import STEPS_OF_A_RUN, render_operations, run_operations

    columns = run_operations(plan)
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in columns], indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"model    {plan.model.name}, {counted(plan.n_threads, 'thread')}, {plan.activations}; "
        f"{plan.n_prompt} keys each\n"
        f"runs     the least of {STEPS_OF_A_RUN * plan.n_runs} steps, for each operation\n\n"
        + render_operations(columns)
    )
    return 0
