"""A model larger than its memory: EMEL's window, EMEL with everything resident, llama.cpp on mapped memory, one cap.

Every lane is a process of its own under the same hard limit (emel.bench.memory_cap), with the file dropped from the
page cache before it starts. None of them guesses tokens: a step with guesses reads no more than one without, and what a
model of random weights writes repeats itself. `--bars` adds the lanes of emel.bench.streaming_bars.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from emel.bench.options import add_model, add_output, count, model_path, require
from emel.errors import EmelError

if TYPE_CHECKING:
    import argparse

    from emel.bench.streaming_lanes import Figures

N_DECODE = 32
_MEASURED_SECONDS = 0.5  # of reading each way


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: as emel chooses)")
    parser.add_argument("--cap", metavar="AMOUNT", help="memory of each process (default: the file's size / 1.3)")
    parser.add_argument("--tokens", type=count(1), default=N_DECODE, metavar="N", help=f"tokens written ({N_DECODE})")
    parser.add_argument("--compare", action="store_true", help="also run llama.cpp (needs emel[bench])")
    parser.add_argument(
        "--bars", action="store_true", help="also measure what streaming is held to, and say if it is met"
    )
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the lanes one after the other and prints their figures."""
    import json

    from emel.bench.lane import EMEL, LLAMA_CPP
    from emel.bench.streaming_bars import bars_table, measure_bars
    from emel.bench.streaming_lanes import OVERHEAD_BYTES, Conditions, measure
    from emel.engine.amounts import parse_memory
    from emel.gguf import open_gguf
    from emel.io.speed import measure_model
    from emel.kernel.threads import choose_threads

    if arguments.compare:
        require("llama_cpp", "llama-cpp-python", "--compare")
    model = model_path(arguments)
    with open_gguf(model) as file:
        parts, size = tuple(file.parts), file.n_bytes
    cap = parse_memory(arguments.cap) if arguments.cap else int(size / 1.3)
    if cap <= OVERHEAD_BYTES:
        raise EmelError(f"a cap of {cap} bytes leaves nothing for a model: the interpreter takes {OVERHEAD_BYTES}")
    n_threads = choose_threads(arguments.threads).n_threads
    lanes = [("EMEL window", EMEL, cap - OVERHEAD_BYTES), ("EMEL resident", EMEL, None)]
    if arguments.compare:
        lanes.append(("llama.cpp mmap", LLAMA_CPP, None))
    conditions = Conditions(model, parts, n_threads, cap, arguments.tokens)
    found = []
    for name, engine, memory in lanes:
        sys.stderr.write(f"{name} ...\n")
        found.append(measure(name, engine, conditions, memory))
    speeds = measure_model(parts, seconds=_MEASURED_SECONDS)
    bars = measure_bars(conditions, found[0], found[1:]) if arguments.bars else []
    if arguments.json:
        report = {
            "model": str(model),
            "file_bytes": size,
            "cap_bytes": cap,
            "sequential_bytes_per_second": asdict(speeds),
            "lanes": [asdict(each) for each in found],
            "bars": [asdict(bar) | {"is_met": bar.is_met} for bar in bars],
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        sys.stdout.write(f"{model.name}: {size / 1e6:,.0f} MB, memory of each process {cap / 1e6:,.0f} MB\n")
        direct, buffered = (_shown(speed, 0, 1e6) for speed in (speeds.direct, speeds.buffered))
        sys.stdout.write(f"one reader: {direct} MB/s past the page cache, {buffered} MB/s through it\n")
        sys.stdout.write("no lane guesses tokens: each step writes one\n\n")
        sys.stdout.write(_table(found) + "\n")
        if bars:
            sys.stdout.write("\n" + bars_table(bars) + "\n")
    return 0


def _table(found: list[Figures]) -> str:
    from emel.bench.table import render_table

    header = ["lane", "load s", "first token s", "tokens/s", "read MB/token", "read MB/s", "stall %", "peak MB"]
    rows = [
        [
            each.lane,
            _shown(each.load_seconds, 1),
            _shown(each.first_token_seconds, 2),
            _shown(each.tokens_per_second, 2),
            _shown(each.read_bytes_per_token, 1, 1e6),
            _shown(each.read_bytes_per_second, 0, 1e6),
            _shown(each.stall_share, 0, 0.01),
            _shown(each.peak_bytes, 0, 1e6),
        ]
        for each in found
    ]
    failures = [f"{each.lane}: {each.failure}" for each in found if each.failure]
    return "\n".join([render_table(header, rows), *failures])


def _shown(value: float | None, digits: int, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:,.{digits}f}"
