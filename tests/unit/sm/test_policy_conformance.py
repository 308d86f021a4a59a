"""What every policy owes a machine, whatever else it does: the same scenario gives the same trace under each.

A policy of another kind is held to all of this by adding it to POLICIES.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import CoMachine, MachineError, ReentrantDispatch, UnexpectedEvent
from emel.sm.external import ExternalCompletionPolicy
from emel.sm.fifo import FifoPolicy
from emel.sm.policies import INLINE, InlinePolicy
from emel.sm.thread_pool import ThreadPoolPolicy
from emel.sm.trace import Transition, trace
from emel.sm.workers import WorkerPool
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadCoMachine,
    DownloadMachine,
    Flip,
    ReadFailed,
    Reset,
    State,
    SwitchContext,
)
from unit.sm.test_thread_pool import FlipMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.sm.policies import SchedulerPolicy
    from emel.sm.task import Task

N_RUNS = 10


@contextmanager
def thread_pool() -> Iterator[SchedulerPolicy]:
    with WorkerPool(2) as workers:
        yield ThreadPoolPolicy(workers)


@contextmanager
def external() -> Iterator[SchedulerPolicy]:
    policy = ExternalCompletionPolicy()
    yield policy
    policy.close()


@contextmanager
def always(policy: SchedulerPolicy) -> Iterator[SchedulerPolicy]:
    yield policy


POLICIES: dict[str, Callable[[], Any]] = {
    "inline": lambda: always(INLINE),
    "inline by the core": lambda: always(InlinePolicy()),
    "fifo": lambda: always(FifoPolicy()),
    "thread pool": thread_pool,
    "external completion": external,
}

STORY = (
    Begin(0),
    Begin(4),
    Begin(1),
    ChunkRead(b"ab"),
    ChunkRead(b"early"),
    ChunkRead(b"poison"),
    ReadFailed("x"),
    Reset(),
    "no event",
    Begin(1),
    ChunkRead(b""),
    Reset(),
    Begin(3),
    ChunkRead(b"cd"),
    ChunkRead(b"ef"),
    Reset(),
)


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Iterator[SchedulerPolicy]:
    with POLICIES[request.param]() as chosen:
        yield chosen


def synchronously(machine: CoMachine[Any, Any], event: object) -> bool:
    return machine.dispatch(event)


def asynchronously(machine: CoMachine[Any, Any], event: object) -> bool:
    task = machine.dispatch_async(event)
    assert task.wait(20)
    return task.result()


WAYS = [synchronously, asynchronously]


def tell(machine: CoMachine[Any, Any], dispatch: Callable[[Any, object], bool]) -> tuple[object, ...]:
    """Every transition, outcome and state of the story; times and threads left out."""
    seen: list[object] = []
    timeless = [each.name for each in fields(Transition) if not each.name.endswith(("_ns", "_id", "_index"))]

    def note(step: Transition) -> None:
        seen.append(tuple(getattr(step, name) for name in timeless))

    with trace(note, machine):
        for event in STORY:
            try:
                outcome: object = dispatch(machine, event)
            except (MachineError, ValueError) as error:
                outcome = repr(error)
            seen.append((machine.state.name, outcome, machine.is_running, copy.deepcopy(machine.context.chunks)))
    return tuple(map(repr, seen))


def test_same_scenario_gives_one_distinct_trace_under_all_policies() -> None:
    traces = set()
    with ExitStack() as stack:
        policies = [stack.enter_context(make()) for make in POLICIES.values()]
        for _ in range(N_RUNS):
            for policy in policies:
                for dispatch in WAYS:
                    machine = DownloadCoMachine(Context(), policy)
                    traces.add(tell(machine, dispatch))
                    assert machine.state is State.DONE
    assert len(traces) == 1
    (steps,) = traces
    assert len(steps) > len(STORY)


@pytest.mark.parametrize("dispatch", WAYS)
def test_refused_event_changes_nothing_and_says_the_same(
    policy: SchedulerPolicy, dispatch: Callable[[Any, object], bool]
) -> None:
    machine = DownloadCoMachine(Context(), policy)
    before = copy.deepcopy(machine.context)
    with pytest.raises(UnexpectedEvent) as error:
        dispatch(machine, ChunkRead())
    with pytest.raises(UnexpectedEvent) as plain:
        DownloadMachine(Context()).dispatch(ChunkRead())
    assert str(error.value) == str(plain.value).replace("DownloadMachine", "DownloadCoMachine")
    assert (machine.state, machine.context, machine.is_running) == (State.IDLE, before, False)


@pytest.mark.parametrize("dispatch", WAYS)
def test_results_and_side_effects_are_visible_before_the_result_is_read(
    policy: SchedulerPolicy, dispatch: Callable[[Any, object], bool]
) -> None:
    log: list[str] = []
    machine = FlipMachine(SwitchContext(lambda: log.append("ran")), policy)
    task = machine.dispatch_async(Flip())
    task.wait()
    assert (log, machine.context.n_flips) == (["ran"], 1)
    assert task.result() is True
    assert dispatch(machine, Flip()) is True
    assert log == ["ran", "ran"]


def test_exception_of_an_effect_is_the_one_its_result_raises(policy: SchedulerPolicy) -> None:
    error = OSError("no disk")

    def fail() -> None:
        raise error

    machine = FlipMachine(SwitchContext(fail), policy)
    task = machine.dispatch_async(Flip())
    task.wait()
    for _ in range(2):
        with pytest.raises(OSError, match="no disk") as caught:
            task.result()
        assert caught.value is error
    with pytest.raises(OSError, match="no disk") as caught:
        machine.dispatch(Flip())
    assert caught.value is error


@pytest.mark.parametrize("dispatch", WAYS)
def test_no_machine_dispatches_to_itself(policy: SchedulerPolicy, dispatch: Callable[[Any, object], bool]) -> None:
    errors: list[BaseException] = []

    def dispatch_to_itself() -> None:
        with pytest.raises(ReentrantDispatch) as error:
            dispatch(machine, Flip())
        errors.append(error.value)

    machine = FlipMachine(SwitchContext(dispatch_to_itself), policy)
    assert dispatch(machine, Flip()) is True
    assert len(errors) == 1


def test_policy_serves_many_machines_and_many_dispatches(policy: SchedulerPolicy) -> None:
    machines = [FlipMachine(SwitchContext(), policy) for _ in range(8)]
    for _ in range(20):
        tasks: list[Task] = [machine.dispatch_async(Flip()) for machine in machines]
        assert [task.wait(20) and task.result() for task in tasks] == [True] * 8
    assert [machine.context.n_flips for machine in machines] == [20] * 8
