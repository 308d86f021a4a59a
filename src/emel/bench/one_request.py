"""The one_request suite: what a request alone pays for the wave, against a bare loop of plan runs over the same tokens.

Both read a short prompt and write the same number of the likeliest tokens, in turns, guesses off. Measured are seconds,
and seconds of CPU of the whole process: the latter also where the machine has other work, with one thread.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from emel.bench.options import add_measurement, add_model, add_output, count, model_path
from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from emel import Model

N_PROMPT = 8
BAR = 1.02
"""The most that a request may take, as a multiple of the loop."""
_TRIES = 50


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a token, and seconds of CPU."""

    wall: float
    cpu: float


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), default=1, metavar="N", help="threads (1)")
    parser.add_argument("--decode", type=count(2), default=64, metavar="N", help="tokens of an answer (64)")
    add_measurement(parser, "pair")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    import emel
    from emel.bench.machine import counted, describe_machine, machine_line
    from emel.bench.statistics import summarize

    path = model_path(arguments)
    n_ctx = N_PROMPT + arguments.decode + 8
    with emel.load(path, n_ctx=n_ctx, n_threads=arguments.threads) as model:
        pairs = measure_pairs(model, arguments.decode, arguments.warmup + arguments.runs)[arguments.warmup :]
    wall = summarize([request.wall / loop.wall for loop, request in pairs]).median
    cpu = summarize([request.cpu / loop.cpu for loop, request in pairs]).median
    machine = describe_machine()
    if arguments.json:
        results = [{"loop": [loop.wall, loop.cpu], "request": [request.wall, request.cpu]} for loop, request in pairs]
        report = {"suite": "one_request", "machine": machine, "wall_ratio": wall, "cpu_ratio": cpu, "results": results}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {path.name}, {counted(arguments.threads, 'thread')}, answers of {arguments.decode} tokens\n"
        f"runs     {arguments.runs} pairs in turns after {arguments.warmup} to warm up; the least, of a token\n\n"
        f"bare loop of plan runs   {_shown([loop for loop, _ in pairs])}\n"
        f"one request              {_shown([request for _, request in pairs])}\n"
        f"median of the pairs      {wall:.3f}x, {cpu:.3f}x of CPU "
        f"({'within' if cpu <= BAR else 'over'} the bar of {BAR:.2f}x)\n"
    )
    return 0


def measure_pairs(model: Model, n_tokens: int, n_pairs: int) -> list[tuple[Cost, Cost]]:
    """(loop, request) of each pair, now the one first, now the other."""
    prompt = _prompt(model, n_tokens)

    def loop() -> None:
        model.measure(prompt, n_tokens - 1)

    def request() -> None:
        _answer(model, prompt, n_tokens)

    pairs = []
    for index in range(n_pairs):
        first = _cost(request if index % 2 else loop, n_tokens)
        second = _cost(loop if index % 2 else request, n_tokens)
        pairs.append((second, first) if index % 2 else (first, second))
    return pairs


def _answer(model: Model, prompt: list[int], n_tokens: int) -> int:
    answer = model.generate_ids(prompt, temperature=0, max_tokens=n_tokens, cache_prompt=False, speculate=False)
    return len(answer.token_ids)


def _prompt(model: Model, n_tokens: int) -> list[int]:
    """One that is answered by so many tokens; EmelError when none was found."""
    import random

    for seed in range(_TRIES):
        prompt = random.Random(seed).choices(range(model.n_vocab), k=N_PROMPT)  # noqa: S311 - not for secrets
        if _answer(model, prompt, n_tokens) == n_tokens:
            return prompt
    raise EmelError(f"{_TRIES} answers all ended before {n_tokens} tokens", hint="measure shorter ones (--decode)")


def _cost(work: Callable[[], None], n_tokens: int) -> Cost:
    from time import perf_counter, process_time

    cpu, wall = process_time(), perf_counter()
    work()
    return Cost((perf_counter() - wall) / n_tokens, (process_time() - cpu) / n_tokens)


def _shown(costs: list[Cost]) -> str:
    return f"{1e6 * min(each.wall for each in costs):9.1f} us, {1e6 * min(each.cpu for each in costs):9.1f} us of CPU"
