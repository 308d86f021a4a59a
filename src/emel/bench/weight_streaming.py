"""A model larger than its memory: EMEL's window, EMEL with everything resident, llama.cpp on mapped memory, one cap.

Every lane is a process of its own under the same hard limit (emel.bench.memory_cap), with the file dropped from the
page cache before it starts. What is read from disk is what the kernel counts for the process.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from emel.bench.options import add_output, count, require
from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse

N_PROMPT = 16
N_CTX = 512
N_DECODE = 32
_MEASURED_SECONDS = 0.5  # of reading each way
_OVERHEAD_BYTES = 64 << 20  # of the interpreter and its libraries, which the cap counts too


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one lane: seconds, bytes read from disk, peak memory of its group; None where it could not run."""

    lane: str
    load_seconds: float | None = None
    first_token_seconds: float | None = None
    tokens_per_second: float | None = None
    read_bytes_per_token: float | None = None
    read_bytes_per_second: float | None = None
    stall_share: float | None = None
    """Of the decode, the time that waited for weights; of EMEL's window."""
    peak_bytes: int | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is the same for every lane."""

    model: Path
    n_threads: int
    cap: int
    n_decode: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("-m", "--model", metavar="MODEL", help="a .gguf file or a known name")
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: as emel chooses)")
    parser.add_argument("--cap", metavar="AMOUNT", help="memory of each process (default: the file's size / 1.3)")
    parser.add_argument("--tokens", type=count(1), default=N_DECODE, metavar="N", help=f"tokens written ({N_DECODE})")
    parser.add_argument("--compare", action="store_true", help="also run llama.cpp (needs emel[bench])")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the lanes one after the other and prints their figures."""
    import json

    from emel.bench.lane import EMEL, LLAMA_CPP
    from emel.engine.budget import parse_memory
    from emel.engine.models import DEFAULT_MODEL, resolve_model
    from emel.io.speed import measure_reads
    from emel.kernel.threads import choose_threads

    if arguments.compare:
        require("llama_cpp", "llama-cpp-python", "--compare")
    model = resolve_model(arguments.model or DEFAULT_MODEL)
    size = model.stat().st_size
    cap = parse_memory(arguments.cap) if arguments.cap else int(size / 1.3)
    if cap <= _OVERHEAD_BYTES:
        raise EmelError(f"a cap of {cap} bytes leaves nothing for a model: the interpreter takes {_OVERHEAD_BYTES}")
    n_threads = choose_threads(arguments.threads).n_threads
    lanes = [("EMEL window", EMEL, cap - _OVERHEAD_BYTES), ("EMEL resident", EMEL, None)]
    if arguments.compare:
        lanes.append(("llama.cpp mmap", LLAMA_CPP, None))
    conditions = Conditions(model, n_threads, cap, arguments.tokens)
    found = []
    for name, engine, memory in lanes:
        sys.stderr.write(f"{name} ...\n")
        found.append(measure(name, engine, conditions, memory))
    speeds = measure_reads(str(model), size, seconds=_MEASURED_SECONDS)
    if arguments.json:
        report = {
            "model": str(model),
            "file_bytes": size,
            "cap_bytes": cap,
            "sequential_bytes_per_second": asdict(speeds),
            "lanes": [asdict(each) for each in found],
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        sys.stdout.write(f"{model.name}: {size / 1e6:,.0f} MB, memory of each process {cap / 1e6:,.0f} MB\n")
        direct, buffered = (_shown(speed, 0, 1e6) for speed in (speeds.direct, speeds.buffered))
        sys.stdout.write(f"one reader: {direct} MB/s past the page cache, {buffered} MB/s through it\n\n")
        sys.stdout.write(_table(found) + "\n")
    return 0


def measure(name: str, engine: str, conditions: Conditions, memory: int | None) -> Figures:
    """One lane, cold: a prompt and its first token, then tokens; what failed is said, not raised."""
    from emel.bench.lane import LLAMA_CPP, Lane, lane_command
    from emel.bench.memory_cap import MemoryCap
    from emel.bench.protocol import LaneError

    n_decode = conditions.n_decode
    drop_from_cache(conditions.model)
    command = lane_command(engine, conditions.model, conditions.n_threads, N_CTX)
    if engine == LLAMA_CPP:
        command.append("mapped")
    elif memory is not None:
        command += ["int16", str(memory)]
    with MemoryCap(conditions.cap) as limit:
        began = time.perf_counter()
        with Lane(name, limit.command(command)) as lane:
            try:
                n_vocab = lane.ready.n_vocab
                loaded = time.perf_counter()
                prompt = [(7 * at + 3) % n_vocab for at in range(N_PROMPT)]
                first = lane.measure(prompt, 0)
                before = disk_bytes(lane.pid)
                timings = lane.measure(prompt, n_decode)
                read = disk_bytes(lane.pid) - before
            except LaneError as error:
                return Figures(name, failure=str(error), peak_bytes=limit.peak_bytes())
        seconds = timings.prefill_seconds + timings.decode_seconds
        return Figures(
            lane=name,
            load_seconds=loaded - began,
            first_token_seconds=first.prefill_seconds,
            tokens_per_second=n_decode / timings.decode_seconds,
            read_bytes_per_token=read / (n_decode + 1),
            read_bytes_per_second=read / seconds,
            stall_share=timings.stalled_seconds / timings.decode_seconds if memory is not None else None,
            peak_bytes=limit.peak_bytes(),
        )


def disk_bytes(pid: int) -> int:
    """Bytes a process has had fetched from storage (proc(5), /proc/pid/io); 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), 0)


def drop_from_cache(path: Path) -> None:
    """Has the system forget a file's pages, as far as nobody maps them."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


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
