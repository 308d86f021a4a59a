"""The suite `roofline`: the most this machine does of what kernels spend their time on, by the number of threads.

int8 multiply-adds and float32 multiply-adds in registers with the widest instructions of the route, and reading an
array far larger than the caches. Everything else is held against these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.bench.options import add_measurement, add_output, add_threads, count

if TYPE_CHECKING:
    import argparse

    from emel.bench.statistics import Summary
    from emel.kernel.buffers import Memory
    from emel.kernel.pool import LanePool
    from emel.kernel.roofline import Roof

    Roofs = dict[Roof, Summary]

READ_MEGABYTES = 1024
SECONDS = 0.2  # of a sample


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_threads(parser)
    group = add_measurement(parser, "roof")
    group.add_argument(
        "--megabytes",
        type=count(1),
        default=READ_MEGABYTES,
        metavar="N",
        help=f"memory to read, far more than the caches ({READ_MEGABYTES})",
    )
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Measures the roofs at every thread count and prints them. EmelError for what a person can put right."""
    from emel.bench.figures import Column, Figure, FigureReport, print_figures
    from emel.bench.machine import choose_lanes, open_route
    from emel.kernel.buffers import Memory
    from emel.kernel.pool import LanePool

    route = open_route()
    columns = {"per_thread": Column("a thread", "{:.1f}")}
    report = FigureReport("roofline", route.name, arguments.warmup, arguments.runs, columns)
    memory = Memory(arguments.megabytes << 20, is_huge=True)
    for n_threads in choose_lanes(arguments.threads):
        with LanePool(n_threads) as pool:
            roofs = measure_roofs(pool, route.isa, memory, n_runs=arguments.runs, n_warmup=arguments.warmup)
        for roof, summary in roofs.items():
            labels: dict[str, str | int] = {"roof": NAMES[roof.name], "threads": n_threads}
            unit = "GB/s" if roof.name == "READ" else "G/s"
            report.figures.append(Figure(labels, unit, summary, {"per_thread": summary.median / n_threads}))
    memory.close()
    if route.name == "scalar":
        report.notes.append("the scalar route has no multiply-add roofs: it is the specification, not a fast path")
    print_figures(report, as_json=arguments.json)
    return 0


NAMES = {"INT8": "int8 multiply-adds", "FMA": "float32 multiply-adds", "READ": "reading memory"}


def measure_roofs(pool: LanePool, isa: int, memory: Memory, *, n_runs: int, n_warmup: int) -> Roofs:
    """Every roof the route has, in 1e9 a second of all lanes together, taken in turns. `memory` is overwritten."""
    from emel.bench.statistics import summarize
    from emel.kernel.roofline import Roof, measure_roof

    samples: dict[Roof, list[float]] = {roof: [] for roof in Roof}
    for turn in range(-n_warmup, n_runs):
        for roof, taken in samples.items():
            rate = measure_roof(pool, isa, roof, seconds=SECONDS, memory=memory)
            if turn >= 0 and rate is not None:
                taken.append(rate / 1e9)
    return {roof: summarize(taken) for roof, taken in samples.items() if taken}
