"""The server suite: how soon `emel serve` answers, and what HTTP and server-sent events take of the CPU for each token.

A run starts a server, and has it stream answers to several clients at once, guesses off, so that nearly every token is
an event of its own. What its event loop runs meanwhile is told by the kernel, as time of one thread of the process: of
reading requests, writing events and counting them, and of nothing that the model computes.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from emel.bench.options import add_measurement, add_model, add_output, count, counts, model_path
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from emel.bench.served_process import Start

LISTENING_BAR = 0.8
"""Seconds from starting the process until it answers."""
TOKEN_BAR = 60e-6
"""Seconds of CPU that HTTP may take for each token."""


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A start, and by the number of streams at once: the event loop's seconds of CPU for a token, and events of one."""

    start: Start
    token_cpu: dict[int, float]
    events: dict[int, float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: all CPUs)")
    parser.add_argument(
        "--streams", type=counts(1), default=(1, 8), metavar="N,N", help="answers that come at once (1,8)"
    )
    parser.add_argument("--decode", type=count(2), default=256, metavar="N", help="tokens of an answer (256)")
    add_measurement(parser, "server")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    from emel.bench.machine import counted, describe_machine, excess_load, machine_line, n_cpus

    load = excess_load()  # before the runs, which are load too
    path, n_threads = model_path(arguments), arguments.threads or n_cpus()
    n_runs = arguments.warmup + arguments.runs
    runs = [measure(path, n_threads, arguments.streams, arguments.decode) for _ in range(n_runs)][arguments.warmup :]
    machine = describe_machine()
    if arguments.json:
        results = [
            {
                "listening": each.start.listening,
                "listening_cpu": each.start.listening_cpu,
                "ready": each.start.ready,
                "ready_cpu": each.start.ready_cpu,
                "token_cpu": each.token_cpu,
                "events_per_token": each.events,
            }
            for each in runs
        ]
        report = {
            "suite": "server",
            "machine": machine,
            "excess_load": load,
            "decode": arguments.decode,
            "results": results,
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {path.name}, {counted(n_threads, 'thread')}, answers of {arguments.decode} tokens\n"
        f"runs     median, least and most of {arguments.runs} servers after {arguments.warmup} to warm up\n"
        f"{_busy(load)}\n"
    )
    sys.stdout.write("\n".join(_lines(runs, arguments.streams)) + "\n")
    return 0


def measure(model: Path, n_threads: int, n_streams: tuple[int, ...], n_tokens: int) -> ServerRun:
    """One server: its start, and its streams, so many at once by turns."""
    from emel.bench.served_process import ServedProcess

    token_cpu, events = {}, {}
    options = ["--threads", str(n_threads), "--speculation", "off", "--parallel", str(max(n_streams))]
    with ServedProcess(model, options) as server:
        server.stream(["warm"], 8)  # what is imported and made with a first request
        for n in n_streams:
            before = server.loop_cpu()
            n_events = server.stream([f"{index}: a story about a fox" for index in range(n)], n_tokens)
            token_cpu[n] = (server.loop_cpu() - before) / (n * n_tokens)
            events[n] = n_events / (n * n_tokens)
        return ServerRun(server.start, token_cpu, events)


def _busy(load: float | None) -> str:
    if load is None:
        return ""
    return f"busy     load {load:.1f} before the runs: other programs run, and starts and tokens take more than alone\n"


def _lines(runs: list[ServerRun], n_streams: tuple[int, ...]) -> list[str]:
    starts = [each.start for each in runs]
    lines = [
        _line("start to listening", [each.listening for each in starts], 1, "s", LISTENING_BAR),
        _line("start to the model", [each.ready for each in starts], 1, "s"),
    ]
    cpus = [(each.listening_cpu, each.ready_cpu) for each in starts]
    known = [(listening, ready) for listening, ready in cpus if listening is not None and ready is not None]
    if known:
        lines.insert(1, _line("  of CPU", [listening for listening, _ in known], 1, "s"))
        lines.append(_line("  of CPU", [ready for _, ready in known], 1, "s"))
    for n in n_streams:
        what = f"HTTP of a token, {n} stream{'s' * (n > 1)}"
        lines.append(_line(what, [each.token_cpu[n] for each in runs], 1e6, "us of CPU", TOKEN_BAR))
    return lines


def _line(what: str, samples: list[float], scale: float, unit: str, bar: float | None = None) -> str:
    from emel.bench.statistics import summarize

    found = summarize(samples)
    digits = 1 if scale > 1 else 2
    median, low, high = (f"{scale * each:.{digits}f}" for each in (found.median, found.low, found.high))
    verdict = "" if bar is None else f" ({'within' if found.median <= bar else 'over'} the bar of {scale * bar:g})"
    return f"{what:<28} {median:>7} {low:>7} {high:>7} {unit}{verdict}"
