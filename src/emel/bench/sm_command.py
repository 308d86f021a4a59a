"""The options of the suites that measure the machines, and what they start. They need no model."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING

from emel.bench.options import add_measurement, add_output

if TYPE_CHECKING:
    import argparse

MODULES = {
    "sm": "sm_transition",
    "sm_scheduler": "sm_scheduler",
    "graph_processor": "sm_graph_processor",
    "decode_wavefront": "sm_decode_wavefront",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_measurement(parser, "test")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the chosen suite and prints its lines on stdout."""
    from emel.bench.machine import describe_machine, machine_line
    from emel.bench.sm_timing import lines_to_json, render_lines

    suite = arguments.suite
    module = importlib.import_module(f"emel.bench.{MODULES[suite]}")
    lines = module.run(arguments.runs, arguments.warmup)
    machine = describe_machine()
    if arguments.json:
        report = {"suite": suite, "machine": machine, "runs": arguments.runs, "results": lines_to_json(lines)}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        sys.stdout.write(
            f"{machine_line(machine)}\n"
            f"runs     median of {arguments.runs} after {arguments.warmup} to warm up; ± is half the range of all\n\n"
            f"{render_lines(lines)}"
        )
    if suite == "sm" and (missing := module.missing_libraries()):
        sys.stderr.write(f"not compared, as not installed: {', '.join(missing)} (pip install 'emel[bench]')\n")
    return 0
