"""Invariant: whatever the schedule, lanes, threads, activations, memory and guesses, each request has its solo bits.

A schedule says what is submitted and cancelled before which step, so a failure happens again. Solo answers come from
one lane on one thread, without guesses and without prefixes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emel
from unit.engine.conftest import n_open
from unit.engine.test_speculation import FreeRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from emel.engine.request import Request
    from emel.graph.batch import Batch

LANES = (1, 2, 3, 8, 17)
THREADS = (1, 2, 3, 5, 8)
N_REQUESTS = 10


class Schedule:
    """Does what is due before each step, on the thread that makes it, then computes it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.due: dict[int, list[Callable[[], object]]] = {}
        self.n_steps = 0

    def at(self, step: int, action: Callable[[], object]) -> None:
        self.due.setdefault(step, []).append(action)

    def compute(self, batch: Batch) -> None:
        self.n_steps += 1
        self.act()
        self._graph.compute(batch)

    def act(self) -> None:
        for action in self.due.pop(self.n_steps, []):
            action()


@dataclass(eq=False)
class Heard:
    """What a request's listener heard, and what the request was."""

    ids: list[int]
    options: dict[str, Any]
    tokens: list[int] = field(default_factory=list)
    ends: list[emel.Completion] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def on_chunk(self, chunk: emel.Chunk) -> None:
        self.tokens += chunk.token_ids

    def on_end(self, completion: emel.Completion) -> None:
        self.ends.append(completion)
        self.is_over.set()

    def on_failure(self, error: Exception) -> None:
        raise error


def random_request(random: Random) -> Heard:
    """A prompt with a beginning that others have too, of text that repeats itself or does not; any sampling."""
    beginning = Random(random.randrange(3)).choices(range(65, 91), k=48)
    period = random.choices(range(65, 91), k=random.randint(1, 9))
    tail = random.choice((period * 4, random.choices(range(1, 257), k=random.randint(1, 20))))
    options: dict[str, Any] = {
        "temperature": random.choice((0, 0, 0.3, 1.0)),
        "seed": random.randrange(2**32),
        "max_tokens": random.choice((1, 5, 12, 24, 40)),
        "logprobs": 1,
        "digests": True,
    }
    if random.random() < 0.5:
        options["logit_bias"] = {65: 6.0, 66: 6.0}  # answers that repeat themselves
    if random.random() < 0.2:
        options["repeat_penalty"] = 1.3
    return Heard([*beginning[: random.choice((0, 16, 20, 48))], *tail][:50], options)


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    return completion.text, completion.token_ids, completion.finish_reason, completion.logprobs, completion.digests


def run_schedule(model: emel.Model, random: Random) -> list[Heard]:
    """Submits, cancels and waits until everybody is over; each has ended exactly once."""
    engine = model.engine
    context = engine.wave.context
    schedule = Schedule(context.graph)
    everyone = [random_request(random) for _ in range(N_REQUESTS)]

    def submit(heard: Heard) -> None:
        made: Request = model.submit(
            heard.ids,
            heard,
            **heard.options,
            cache_prompt=random.random() < 0.8,
            speculate=random.random() < 0.7,
            priority=random.choice((0, 0, 1)),
        )
        if random.random() < 0.25:
            schedule.at(schedule.n_steps + random.randint(1, 12), made.cancel)

    for index, heard in enumerate(everyone):
        step = 0 if index == 0 else random.randrange(25)
        schedule.at(step, partial(submit, heard))

    def advance_if_idle() -> None:
        if schedule.due and not context.lanes and not context.waiting:  # nobody makes a step any more
            schedule.n_steps = min(schedule.due)
            schedule.act()

    context.graph, plain = schedule, context.graph
    try:
        engine.between_steps(schedule.act)
        while left := [heard for heard in everyone if not heard.is_over.is_set()]:
            engine.between_steps(advance_if_idle)
            left[0].is_over.wait(0.05)
    finally:
        context.graph = plain
    return everyone


@pytest.fixture(scope="module")
def solo(tiny_path: Path) -> Iterator[dict[str, emel.Model]]:
    """One lane, one thread, by activations."""
    models = {each: emel.load(tiny_path, n_lanes=1, n_threads=1, activations=each) for each in ("int16", "int8")}
    yield models
    for model in models.values():
        model.close()


def check_schedule(
    path: Path, solo: emel.Model, random: Random, *, n_lanes: int, n_threads: int, activations: str
) -> int:
    """Runs a random schedule, compares; how many lanes were preempted."""
    is_tight = random.random() < 0.6
    with pytest.MonkeyPatch.context() as patch:
        if is_tight:
            patch.setattr("emel.engine.memory.USUAL_TOKENS", 1)
        model = emel.load(path, n_lanes=n_lanes, n_threads=n_threads, activations=activations)
    with model:
        if random.random() < 0.7:
            model.engine.wave.context.costs = FreeRows()
        everyone = run_schedule(model, random)
        for heard in everyone:
            (completion,) = heard.ends
            expected = solo.generate_ids(heard.ids, **heard.options, cache_prompt=False, speculate=False)
            if completion.finish_reason == "cancelled":
                n = len(completion.token_ids)
                assert tuple(heard.tokens) == completion.token_ids[: len(heard.tokens)]  # half a character is not told
                assert completion.token_ids == expected.token_ids[:n]
                assert (completion.digests or ())[:n] == (expected.digests or ())[:n]
            else:
                assert outcome(completion) == outcome(expected)
                assert tuple(heard.tokens) == completion.token_ids
        assert n_open(model) == 0
        memory, counters = model.engine.wave.context.memory, model.wave.counters
        assert model.engine.between_steps(memory.free_blocks) == memory.n_blocks
        assert counters.n_submitted == N_REQUESTS == counters.n_stopped + counters.n_length + counters.n_cancelled
        return counters.n_preempted


@pytest.mark.parametrize("activations", ["int16", "int8"])
@pytest.mark.parametrize("n_threads", THREADS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**32), n_lanes=st.sampled_from(LANES))
def test_every_request_has_its_solo_bits(
    tiny_path: Path, solo: dict[str, emel.Model], n_threads: int, activations: str, seed: int, n_lanes: int
) -> None:
    check_schedule(
        tiny_path, solo[activations], Random(seed), n_lanes=n_lanes, n_threads=n_threads, activations=activations
    )


@pytest.mark.slow
def test_schedules_preempt_cancel_and_guess(tiny_path: Path, solo: dict[str, emel.Model]) -> None:
    """Many more of them, one for each number of lanes and threads; what they are to cover happens."""
    n_preempted = 0
    for index, n_lanes in enumerate(LANES):
        for seed, n_threads in enumerate(THREADS):
            n_preempted += check_schedule(
                tiny_path,
                solo["int16"],
                Random(seed + 100 * index),
                n_lanes=n_lanes,
                n_threads=n_threads,
                activations="int16",
            )
    assert n_preempted > 0
