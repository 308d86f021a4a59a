"""The prefix suite: what a request pays for a prompt whose beginning an earlier one had, in seconds to the first token.

Each run has a prefix of its own: a first request computes it, a second with another end finds it. The second's answer
is compared with that of a request that may find nothing: the same tokens with the same log probabilities.
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

    from emel import Model

N_TAIL = 16
"""Tokens of the end that each request has for itself."""
BAR = 0.10
"""The most that the second request may take, as a share of the first."""


@dataclass(frozen=True, slots=True)
class PrefixRun:
    """Seconds to the first token, and how many tokens of the prompt the second request found."""

    cold: float
    warm: float
    n_found: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("-t", "--threads", type=count(1), metavar="N", help="threads (default: all CPUs)")
    parser.add_argument("--prefix", type=count(16), default=2000, metavar="N", help="tokens they share (2000)")
    add_measurement(parser, "pair")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    import emel
    from emel.bench.machine import counted, describe_machine, machine_line, n_cpus
    from emel.bench.statistics import summarize

    path = model_path(arguments)
    n_threads = arguments.threads or n_cpus()
    with emel.load(path, n_ctx=arguments.prefix + N_TAIL + 8, n_threads=n_threads) as model:
        runs = [measure_pair(model, arguments.prefix, seed) for seed in range(arguments.warmup + arguments.runs)]
    runs = runs[arguments.warmup :]
    cold, warm = summarize([each.cold for each in runs]).median, summarize([each.warm for each in runs]).median
    machine = describe_machine()
    if arguments.json:
        results = [{"cold": each.cold, "warm": each.warm, "found": each.n_found} for each in runs]
        report = {"suite": "prefix", "machine": machine, "prefix": arguments.prefix, "results": results}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        return 0
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {path.name}, {counted(n_threads, 'thread')}\n"
        f"runs     median of {arguments.runs} after {arguments.warmup} to warm up\n\n"
        f"first request    {1e3 * cold:9.1f} ms to the first token of {arguments.prefix + N_TAIL}\n"
        f"second request   {1e3 * warm:9.1f} ms, {runs[0].n_found} tokens found: {warm / cold:.1%} of the first "
        f"({'within' if warm <= BAR * cold else 'over'} the bar of {BAR:.0%})\n"
    )
    return 0


def measure_pair(model: Model, n_prefix: int, seed: int) -> PrefixRun:
    """Two requests with a prefix that no run before had; EmelError when finding it changes the answer."""
    import random

    choose = random.Random(seed)  # noqa: S311 - not for secrets
    prefix, first, second = ([choose.randrange(model.n_vocab) for _ in range(n)] for n in (n_prefix, N_TAIL, N_TAIL))
    options = {"temperature": 0, "max_tokens": 4, "logprobs": 4}
    cold = model.generate_ids(prefix + first, **options)
    warm = model.generate_ids(prefix + second, **options)
    plain = model.generate_ids(prefix + second, cache_prompt=False, **options)
    if (warm.token_ids, warm.logprobs) != (plain.token_ids, plain.logprobs):
        raise EmelError("a prefix that was found gives another answer than one that was computed")
    return PrefixRun(cold.timings.time_to_first_token, warm.timings.time_to_first_token, warm.n_cached_tokens)
