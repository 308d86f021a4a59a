"""The step suite: microseconds of what a wave does in Python from the end of one plan run to the beginning of the next.

One CPU does it while the others wait. Lanes take the likeliest tokens and have a listener that takes every chunk; with
guesses, what they write does not repeat itself, so that there is only the looking. Two ways: with runs that do nothing
(the text they are said to give is made up), which is what the work costs, and with real ones, which leave nothing of
Python's memory in the caches.
"""

from __future__ import annotations

import json
import sys
import threading
from array import array
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from emel.bench.options import add_model, add_output, count, counts, model_path
from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from emel import Chunk, Completion, Model
    from emel.engine.session import Session
    from emel.graph.batch import Batch
    from emel.graph.plan import Plan
    from emel.kernel.pool import LanePool

N_PROMPT = 16
GUESSES = (None, "lookup")


@dataclass(frozen=True, slots=True)
class Between:
    """Seconds between two runs in which all lanes decode, of each pair of them."""

    n_lanes: int
    has_guesses: bool
    idle: Sequence[float]
    """With runs that do nothing."""
    real: Sequence[float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_model(parser)
    parser.add_argument("--lanes", type=counts(1), default=(1, 8, 16), metavar="N,N", help="how many (1,8,16)")
    parser.add_argument("--decode", type=count(8), default=200, metavar="N", help="tokens of each answer (200)")
    add_output(parser, has_plot=False)


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite and prints its results on stdout. EmelError for what a person can put right."""
    from emel.bench.machine import describe_machine, machine_line
    from emel.bench.table import render_table

    path = model_path(arguments)
    rows = [measure(path, n, guesses, arguments.decode) for n in arguments.lanes for guesses in GUESSES]
    machine = describe_machine()
    if arguments.json:
        results = [
            {"lanes": row.n_lanes, "guesses": row.has_guesses, "idle": list(row.idle), "real": list(row.real)}
            for row in rows
        ]
        sys.stdout.write(json.dumps({"suite": "step", "machine": machine, "results": results}, indent=2) + "\n")
        return 0
    header = ["lanes", "guesses", "runs of nothing", "least", "of a lane", "real runs", "least"]
    sys.stdout.write(
        f"{machine_line(machine)}\n"
        f"model    {path.name}, 1 thread, answers of {arguments.decode} tokens\n"
        "figures  microseconds of Python from one run to the next: median and least of all steps\n\n"
        + render_table(header, [_shown(row) for row in rows], n_left=2)
        + "\n"
    )
    return 0


def measure(path: Path, n_lanes: int, guesses: str | None, n_decode: int) -> Between:
    """Both ways with so many lanes. EmelError when no step had all of them."""
    import emel

    n_ctx = N_PROMPT + n_decode + 8
    with emel.load(path, n_ctx=n_ctx, n_threads=1, n_lanes=n_lanes, speculation=guesses) as model:
        ways = []
        for is_idle in (True, False):
            watched = WatchedPlan.put_into(model, n_lanes, is_idle=is_idle)
            _answer(model, n_lanes, n_decode)
            watched.take_out(model)
            if not watched.seconds:
                raise EmelError(
                    f"no two steps in turn had all of {n_lanes} lanes", hint="measure longer ones (--decode)"
                )
            ways.append(watched.seconds)
    return Between(n_lanes, guesses is not None, *ways)


class WatchedPlan:
    """Stands in for a model's plan, and notes how long it was left alone between runs in which all lanes decode.

    With `is_idle` such runs do nothing, and every token is another one.
    """

    def __init__(self, plan: Plan, n_lanes: int, tokens: Sequence[int], *, is_idle: bool) -> None:
        self.seconds: list[float] = []
        self.has_arena = plan.has_arena
        self.assembly, self.weights, self.stages = plan.assembly, plan.weights, plan.stages
        self.output_width, self.bind = plan.output_width, plan.bind
        self._plan, self._n_lanes, self._is_idle = plan, n_lanes, is_idle
        self._tokens, self._n_given, self._ended = tokens, 0, 0.0

    @classmethod
    def put_into(cls, model: Model, n_lanes: int, *, is_idle: bool) -> WatchedPlan:
        """Has a model's graph run it in place of its plan."""
        session = _session(model)
        ends = session.tokenizer.end_ids
        tokens = [token for token in range(session.n_vocab) if token not in ends]
        watched = cls(session.graph.plan, n_lanes, array("i", tokens), is_idle=is_idle)
        watched._set(model, cast("Plan", watched))
        return watched

    def take_out(self, model: Model) -> None:
        """Puts the plan back."""
        self._set(model, self._plan)

    def _set(self, model: Model, plan: Plan) -> None:
        def change() -> None:
            context = session.graph.machine.context
            context.plan, context.execute = plan, None

        session = _session(model)
        session.between_steps(change)

    def ensure_arena(self) -> None:
        """Allocates the arena unless it is there."""
        self._plan.ensure_arena()
        self.has_arena = True

    def run(self, pool: LanePool, batch: Batch) -> int:
        """A run, or none."""
        begun = perf_counter()
        is_whole = batch.n_outputs == batch.n_tokens >= self._n_lanes
        if is_whole and self._ended:
            self.seconds.append(begun - self._ended)
        status = self._give(batch) if is_whole and self._is_idle else self._plan.run(pool, batch)
        self._ended = perf_counter() if is_whole else 0.0
        return status

    def _give(self, batch: Batch) -> int:
        for output in range(batch.n_outputs):
            batch.argmax[output] = self._tokens[self._n_given % len(self._tokens)]
            self._n_given += 1
        return 0


def _session(model: Model) -> Session:
    session = model._session  # noqa: SLF001 - a look inside is what this is for
    assert session is not None
    return session


class _Listener:
    """Takes what comes."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.error: Exception | None = None

    def on_chunk(self, chunk: Chunk) -> None:
        """Nothing is done with it."""

    def on_end(self, _completion: Completion) -> None:
        """It is over."""
        self.is_over.set()

    def on_failure(self, error: Exception) -> None:
        """It failed."""
        self.error = error
        self.is_over.set()


def _answer(model: Model, n_lanes: int, n_decode: int) -> None:
    from emel.bench.workload import prompt_ids

    ids = prompt_ids(N_PROMPT * n_lanes, model.n_vocab)
    listeners = [_Listener() for _ in range(n_lanes)]
    for at, listener in enumerate(listeners):
        prompt = ids[at * N_PROMPT : (at + 1) * N_PROMPT]
        model.submit(prompt, listener, temperature=0, max_tokens=n_decode, cache_prompt=False)
    for listener in listeners:
        listener.is_over.wait()
        if listener.error is not None:
            raise listener.error


def _shown(row: Between) -> list[str]:
    from statistics import median

    def microseconds(figure: Callable[[Any], float], seconds: Sequence[float]) -> str:
        return f"{1e6 * figure(seconds):.0f}"

    return [
        str(row.n_lanes),
        "looked for" if row.has_guesses else "off",
        microseconds(median, row.idle),
        microseconds(min, row.idle),
        f"{1e6 * median(row.idle) / row.n_lanes:.1f}",
        microseconds(median, row.real),
        microseconds(min, row.real),
    ]
