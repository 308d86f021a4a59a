"""`emel doctor`: what this machine has, what EMEL uses of it and why, and how fast a model can be here at most."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from emel.cli.arguments import add_model, chosen_model, memory_amount, whole_number
from emel.cli.inspect import forecast_lines, least_bytes
from emel.cli.models import locate
from emel.cli.terminal import UsageError, write_out
from emel.engine.options import DEFAULT_CONTEXT
from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from emel.cli.footprint import Footprint
    from emel.engine.forecast import Forecast
    from emel.kernel.features import Route
    from emel.kernel.host_memory import HostMemory
    from emel.kernel.threads import ThreadChoice

_ROUNDS = 3  # of reading memory: the best is what there is at most, whatever else the machine does


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor and what this process may have of it."""

    name: str
    n_logical: int
    n_allowed: int
    n_cores: int
    """Physical cores of the allowed CPUs."""
    quota: float | None
    """CPUs' worth of time the control groups grant; None without a limit."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Measured bytes per second; None is what was not measured."""

    memory: float | None
    disk: float | None


@dataclass(frozen=True, slots=True)
class Prospect:
    """What to expect of one model on this machine."""

    path: str
    footprint: Footprint
    needed_bytes: int
    """Weights as laid out for computing, and the context a model usually gets."""
    fits: bool | None
    decode_tokens_per_second_at_most: float | None
    """Memory bandwidth over the weights read for each token."""
    load_seconds_from_disk: float | None
    least_bytes: int | None
    """The smallest budget of memory that works; None for a model that does not run."""
    streamed: Forecast | None
    """Within the memory that was asked for, or within what is available when the model does not fit that."""
    streamed_failure: str = ""
    """Why there is none: too little memory even for streaming, or no model."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """All that was found; the measurements ran with the chosen number of threads."""

    cpu: Cpu
    available_routes: tuple[str, ...]
    route: Route
    threads: ThreadChoice
    load: float
    """CPUs' worth of programs that ran or waited to, on average over the last minute: all of this machine's."""
    memory: HostMemory
    bytes_per_second: Speeds
    model: Prospect | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel doctor [options] [MODEL]"
    parser.epilog = "Without MODEL: the default one, if it was fetched. Nothing is fetched. Takes about a second."
    parser.add_argument("words", nargs="?", metavar="MODEL", help="the model to judge")
    parser.add_argument("-t", "--threads", type=whole_number(1), metavar="N", help="measure with N threads")
    parser.add_argument(
        "--memory", type=memory_amount, metavar="AMOUNT", help="what the model may take, such as 2GiB or 50%%"
    )
    parser.add_argument("--no-measure", action="store_true", help="skip the measurements")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Looks, measures, reports."""
    flagged = chosen_model(arguments)
    if flagged and arguments.words:
        raise UsageError(f"unexpected argument {arguments.words!r}: the model is given by a flag")
    checkup = _check_up(
        _find_model(arguments.words or flagged),
        arguments.threads,
        arguments.memory,
        measure=not arguments.no_measure,
    )
    if arguments.json:
        import json

        write_out(json.dumps(asdict(checkup), indent=2) + "\n")
    else:
        write_out("".join(f"{line}\n" for line in _as_lines(checkup)))
    return 0


def _check_up(path: Path | None, n_threads: int | None, budget: str | None, *, measure: bool) -> Checkup:
    from emel.bench.decode_roof import measure_reading
    from emel.kernel.features import available_routes, choose_route
    from emel.kernel.host_memory import read_host_memory
    from emel.kernel.threads import choose_threads

    try:
        route = choose_route()
    except ValueError as error:
        raise EmelError(str(error)) from error
    load, threads, memory = os.getloadavg()[0], choose_threads(n_threads), read_host_memory()
    speeds = Speeds(None, None)
    if measure:
        reading = max(measure_reading(threads.n_threads) for _ in range(_ROUNDS))
        speeds = Speeds(reading, _measure_disk(path) if path else None)
    prospect = _judge(path, memory, speeds, budget) if path else None
    return Checkup(_look_at_cpu(), tuple(available_routes()), route, threads, load, memory, speeds, prospect)


def _measure_disk(path: Path) -> float | None:
    """Bytes per second of reading a model's largest file, cold, as it is measured before weights are streamed."""
    from emel.gguf import open_gguf
    from emel.io.speed import measure_model

    with open_gguf(path) as file:
        return measure_model(file.parts).best


def _look_at_cpu() -> Cpu:
    from emel.bench.machine import cpu_name
    from emel.kernel.threads import count_cores, cpu_quota

    n_logical = os.cpu_count() or 1
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(n_logical))
    return Cpu(cpu_name(), n_logical, len(allowed), count_cores(allowed), cpu_quota())


def _find_model(model: str | None) -> Path | None:
    from emel.engine.models import DEFAULT_MODEL, builtin_path, find_builtin

    if model is not None:
        return locate(model, offline=True)
    default = find_builtin(DEFAULT_MODEL)
    return builtin_path(default) if default else None


def _judge(path: Path, memory: HostMemory, speeds: Speeds, budget: str | None) -> Prospect:
    from emel.cli.footprint import estimate
    from emel.engine.forecast import forecast
    from emel.errors import ModelLoadError
    from emel.gguf import open_gguf

    streamed, failure = None, ""
    with open_gguf(path) as file:
        footprint = estimate(file, [DEFAULT_CONTEXT])
        needed = (footprint.packed_bytes or footprint.file_bytes) + sum(footprint.kv_bytes.values())
        least = least_bytes(file, None)
        fits = None if memory.available is None else needed <= memory.available
        limit = budget if budget is not None else memory.available if fits is False else None
        if limit:
            try:
                streamed = forecast(file, limit, measure=speeds.memory is not None)
            except ModelLoadError as error:
                failure = str(error)
    decode = (
        speeds.memory / footprint.read_bytes_per_token if speeds.memory and footprint.read_bytes_per_token else None
    )
    return Prospect(
        path=str(path),
        footprint=footprint,
        needed_bytes=needed,
        fits=fits,
        decode_tokens_per_second_at_most=decode,
        load_seconds_from_disk=footprint.file_bytes / speeds.disk if speeds.disk else None,
        least_bytes=least,
        streamed=streamed,
        streamed_failure=failure,
    )


def _as_lines(checkup: Checkup) -> list[str]:
    cpu, route, memory, speeds = checkup.cpu, checkup.route, checkup.memory, checkup.bytes_per_second
    quota = "" if cpu.quota is None else f", time for {cpu.quota:g}"
    lines = [f"CPU         {cpu.name}"]
    lines.append(f"            {cpu.n_logical} logical, {cpu.n_allowed} allowed, {cpu.n_cores} cores{quota}")
    lines.append(f"kernels     {route.name}: {route.reason} (available: {', '.join(checkup.available_routes)})")
    lines.append(f"threads     {checkup.threads.n_threads}: {checkup.threads.reason}")
    if checkup.load > cpu.n_logical:
        lines.append(
            f"            load {checkup.load:.1f} on {cpu.n_logical} CPUs: other programs run, and threads wait for"
        )
        lines.append("            each other: -t 1 may be faster as long as they do")
    lines.append(f"memory      {_size(memory.available)} available of {_size(memory.total)}")
    if memory.limit is not None:
        binding = "it is what counts" if memory.limited_by_group else "the machine has less left than it leaves"
        lines.append(f"            limit of the control group: {_size(memory.limit)} ({binding})")
    if speeds.memory:
        lines.append(f"bandwidth   memory {_size(speeds.memory)}/s with {_count(checkup.threads.n_threads, 'thread')}")
        disk = f"{_size(speeds.disk)}/s, of what is not cached" if speeds.disk else "not measured"
        lines.append(f"            disk {disk}")
    lines += _prospect_lines(checkup.model) if checkup.model else ["model       none fetched yet: emel pull"]
    return lines


def _prospect_lines(prospect: Prospect) -> list[str]:
    verdict = {True: "it fits", False: "more than is available", None: "available memory is unknown"}[prospect.fits]
    lines = [f"model       {prospect.path}"]
    lines.append(
        f"            needs {_size(prospect.needed_bytes)} with a context of {DEFAULT_CONTEXT} tokens: {verdict}"
    )
    if prospect.footprint.unsupported:
        lines.append(f"            cannot run yet: no kernels for {', '.join(prospect.footprint.unsupported)}")
    if prospect.decode_tokens_per_second_at_most:
        speed = prospect.decode_tokens_per_second_at_most
        lines.append(f"            decode at most {speed:,.0f} tokens/s, the memory's speed over the weights' size")
    if prospect.load_seconds_from_disk:
        lines.append(f"            read from disk in {prospect.load_seconds_from_disk:.1f} s when it is not cached")
    if prospect.least_bytes is not None:
        lines.append(f"            streams from the file within less, from --memory {prospect.least_bytes} on")
    if prospect.streamed is not None:
        lines.append(f"            within {_size(prospect.streamed.budget_bytes)} (--memory):")
        lines += [f"              {line}" for line in forecast_lines(prospect.streamed)]
    elif prospect.streamed_failure:
        lines.append(f"            cannot be streamed: {prospect.streamed_failure}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(n_bytes: float | None) -> str:
    if n_bytes is None:
        return "an unknown amount"
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"
