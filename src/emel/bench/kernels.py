"""The suite `kernels`: how near the matrix products of every format come to the roofs of this machine.

One token: a matrix far larger than the caches, so that reading it is what takes time. More tokens: the first rows of
the same matrix, few enough to stay in the cache, so that multiplying is. Activations are quantised beforehand.
Every product takes turns with the roof it is held to, so that a machine that slows down lowers both.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from emel.bench.options import (
    add_activations,
    add_measurement,
    add_output,
    add_threads,
    check_plot,
    count,
    counts,
    multiple_of_256,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.bench.figures import Column, Figure
    from emel.bench.matmul import Product
    from emel.bench.statistics import Summary
    from emel.kernel.pool import LanePool
    from emel.kernel.roofline import Roof
    from emel.tensor.types import TensorType

    MeasureRoof = Callable[[Roof], float | None]

MEGABYTES = 128  # of the matrix for one token
CACHED_SHARE = 16  # of it, more tokens are multiplied with this part
ROOF_FACTOR = 2  # times as much memory is read for the roof
SAMPLE_SECONDS = 0.05
NOTES = {
    "int16": [
        "an activation has two int8 planes, so a block format takes two int8 multiply-adds for each of its own:",
        "the two-plane roof is half the int8 roof (with AVX2 both are one int16, and may take all of it). Float",
        "formats are held to the roof of float32 multiply-adds.",
    ],
    "int8": [
        "an activation has one int8 plane (--activations int8). Float formats are held to the roof of float32",
        "multiply-adds.",
    ],
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_threads(parser)
    group = parser.add_argument_group("products")
    group.add_argument("--format", type=_formats, metavar="NAME,NAME", help="formats, such as Q4_0,Q6_K (all)")
    group.add_argument("--tokens", type=counts(1), default=(1, 8, 64, 512), metavar="N,N", help="(1,8,64,512)")
    group.add_argument("--cols", type=multiple_of_256, default=2048, metavar="N", help="a multiple of 256 (2048)")
    group.add_argument(
        "--megabytes", type=count(1), default=MEGABYTES, metavar="N", help=f"size of the matrix ({MEGABYTES})"
    )
    add_activations(group)
    add_measurement(parser, "product")
    add_output(parser, has_plot=True)


def run(arguments: argparse.Namespace) -> int:
    """Measures every format and prints the figures. EmelError for what a person can put right."""
    from emel.bench.figures import FigureReport, print_figures
    from emel.bench.machine import choose_lanes, counted, open_route
    from emel.bench.progress import Progress
    from emel.kernel.buffers import Memory
    from emel.kernel.packing import PACKABLE
    from emel.kernel.pool import LanePool
    from emel.kernel.roofline import measure_roof

    check_plot(arguments.plot)
    route = open_route()
    report = FigureReport(
        "kernels",
        route.name,
        arguments.warmup,
        arguments.runs,
        _columns(arguments.activations),
        NOTES[arguments.activations],
    )
    progress = Progress()
    memory = Memory(ROOF_FACTOR * arguments.megabytes << 20, is_huge=True)
    for n_threads in choose_lanes(arguments.threads):
        with LanePool(n_threads) as pool:
            measure_here = partial(measure_roof, pool, route.isa, seconds=SAMPLE_SECONDS, memory=memory)
            for type_ in arguments.format or PACKABLE:
                progress.show(f"{type_.name}, {counted(n_threads, 'thread')}")
                report.figures += _measure_format(pool, type_, arguments, measure_here)
    progress.clear()
    memory.close()
    print_figures(report, as_json=arguments.json)
    if arguments.plot is not None:
        from emel.bench.plot_kernels import save_kernel_plot

        save_kernel_plot(report, arguments.plot)
    return 0


def _columns(activations: str) -> dict[str, Column]:
    from emel.bench.figures import Column

    columns = {
        "gigabytes": Column("GB/s", "{:.1f}"),
        "roof": Column("roof", "{:.1f}"),
        "share_of_read": Column("of the read roof", "{:.0%}"),
        "share_of_two_plane": Column("of the two-plane roof", "{:.0%}"),
        "share_of_int8": Column("of int8", "{:.0%}"),
        "share_of_fma": Column("of float32", "{:.0%}"),
    }
    if activations == "int8":
        del columns["share_of_two_plane"]
    return columns


def _measure_format(
    pool: LanePool, type_: TensorType, arguments: argparse.Namespace, measure_roof: MeasureRoof
) -> Iterator[Figure]:
    from emel.bench.figures import Figure
    from emel.bench.matmul import RandomMatrix
    from emel.kernel.numerics import choose_activations
    from emel.kernel.roofline import Roof
    from emel.kernel.sizes import packed_bytes

    activations = choose_activations(arguments.activations)
    group_bytes = packed_bytes(type_, 16, arguments.cols)
    rows = -(-(arguments.megabytes << 20) // group_bytes) * 16
    few_rows = -(-rows // (16 * CACHED_SHARE)) * 16
    with RandomMatrix(pool, type_, rows, arguments.cols) as matrix:
        for n_tokens in arguments.tokens:
            roof = Roof.READ if n_tokens == 1 else Roof.INT8 if type_.is_quantized else Roof.FMA
            n_rows = rows if n_tokens == 1 else few_rows
            with matrix.product(rows=n_rows, n_tokens=n_tokens, activations=activations) as product:
                rate, limit = _take_turns(product, partial(measure_roof, roof), arguments.runs, arguments.warmup)
                labels: dict[str, str | int] = {"format": type_.name, "tokens": n_tokens, "threads": pool.n_lanes}
                bytes_each = product.n_weight_bytes / product.n_multiply_adds
                extras = shares_of(
                    roof, rate.median, limit, bytes_each, n_planes=2 if activations.name == "INT16" else 1
                )
                yield Figure(labels, "G multiply-adds/s", rate, extras)


def _take_turns(
    product: Product, measure_roof: Callable[[], float | None], n_runs: int, n_warmup: int
) -> tuple[Summary, float | None]:
    """The product's 1e9 multiply-adds a second, and the median of the roof where there is one, in 1e9 a second."""
    from emel.bench.statistics import summarize

    n_calls = product.count_calls(SAMPLE_SECONDS)
    rates: list[float] = []
    roofs: list[float] = []
    for turn in range(-n_warmup, n_runs):
        seconds = product.time_calls(n_calls)
        limit = measure_roof()
        if turn >= 0:
            rates.append(product.n_multiply_adds * n_calls / seconds / 1e9)
            roofs += [] if limit is None else [limit / 1e9]
    return summarize(rates), summarize(roofs).median if roofs else None


def shares_of(
    roof: Roof, rate: float, limit: float | None, bytes_per_multiply_add: float, *, n_planes: int = 2
) -> dict[str, float | None]:
    """What a rate comes to against the roof it is held to; both in 1e9 a second, of multiply-adds or of bytes."""
    extras: dict[str, float | None] = {"roof": limit}
    if roof.name == "READ":
        extras["gigabytes"] = rate * bytes_per_multiply_add
    if limit is None:
        return extras
    if roof.name == "READ":
        extras["share_of_read"] = rate * bytes_per_multiply_add / limit
    elif roof.name == "INT8":
        extras["share_of_int8"] = rate / limit
        if n_planes == 2:
            extras["share_of_two_plane"] = 2 * rate / limit
    else:
        extras["share_of_fma"] = rate / limit
    return extras


def _formats(text: str) -> tuple[TensorType, ...]:
    from emel.kernel.packing import PACKABLE

    known = {type_.name.lower(): type_ for type_ in PACKABLE}
    found = []
    for name in dict.fromkeys(part.strip().lower() for part in text.split(",")):
        if name not in known:
            supported = ", ".join(type_.name for type_ in PACKABLE)
            raise argparse.ArgumentTypeError(f"{name!r} is no format with a kernel: {supported}")
        found.append(known[name])
    return tuple(found)
