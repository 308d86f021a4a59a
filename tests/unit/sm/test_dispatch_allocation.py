"""A dispatch leaves nothing allocated: the decode step of a model goes through several."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import emel.sm
from emel.sm import CoMachine, Machine, Row
from emel.sm.external import ExternalCompletionPolicy
from emel.sm.fifo import FifoPolicy
from emel.sm.thread_pool import ThreadPoolPolicy
from emel.sm.traps import checkpoint
from emel.sm.workers import WorkerPool


class State(Enum):
    READY = "ready"
    STEPPED = "stepped"


@dataclass(frozen=True, slots=True)
class Step:
    pass


@dataclass(slots=True)
class Context:
    is_done: bool = False


def is_open(context: Context, event: object) -> bool:
    return not context.is_done


def step(context: Context, event: object) -> None:
    context.is_done = False


async def step_slowly(context: Context, event: object) -> None:
    await checkpoint()


def define(base: Any, effect: Any) -> Any:
    table = (
        Row(State.READY, Step, is_open, effect, State.STEPPED),
        Row(State.STEPPED, None, is_open, step, State.READY),
    )
    return type("StepMachine", (base,), {"INITIAL": State.READY, "TABLE": table})


WORKERS = WorkerPool(1)  # ends with the process
KINDS = [
    (Machine, step, ()),
    (CoMachine, step, ()),
    (CoMachine, step_slowly, ()),
    (CoMachine, step_slowly, (FifoPolicy(),)),
    (CoMachine, step_slowly, (ExternalCompletionPolicy(),)),
    (CoMachine, step_slowly, (ThreadPoolPolicy(WORKERS),)),
]


@pytest.mark.parametrize(("base", "effect", "policies"), KINDS)
def test_dispatch_leaves_nothing_allocated(base: Any, effect: Any, policies: tuple[Any, ...]) -> None:
    machine, event = define(base, effect)(Context(), *policies), Step()
    folder = str(Path(emel.sm.__file__).parent / "*")
    for _ in range(100):
        machine.dispatch(event)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        machine.dispatch(event)
        before = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, folder)])
        for _ in range(1000):
            machine.dispatch(event)
        after = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, folder)])
    finally:
        tracemalloc.stop()
        gc.enable()
    assert sum(each.size for each in after.traces) - sum(each.size for each in before.traces) <= 256


def test_machine_is_freed_without_the_garbage_collector() -> None:
    class Witness(Context):
        n_alive = 0

        def __init__(self) -> None:
            super().__init__()
            Witness.n_alive += 1

        def __del__(self) -> None:
            Witness.n_alive -= 1

    gc.disable()
    try:
        machine = define(CoMachine, step_slowly)(Witness())
        machine.dispatch(Step())
        assert Witness.n_alive == 1
        del machine
        assert Witness.n_alive == 0
    finally:
        gc.enable()
