from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import CoMachine, CompletionOverflow, ReentrantDispatch, Row, Task, UnexpectedEvent
from emel.sm.policies import INLINE, InlinePolicy, SchedulerPolicy
from emel.sm.task import REJECTED, Promise
from emel.sm.traps import checkpoint
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
    Switch,
    SwitchContext,
    flip,
)

if TYPE_CHECKING:
    from emel.sm.policies import Run, Runnable


class StepPolicy(SchedulerPolicy):
    """Takes runs on and drives them one trap at a time, when the test says so."""

    def __init__(self) -> None:
        self.ready: deque[tuple[Run, Promise]] = deque()

    def start(self, machine: Runnable, event: object) -> Task:
        promise = Promise("a stepped run")
        self.ready.append((machine.run(event), promise))
        return Task(promise)

    def step(self) -> None:
        run, promise = self.ready.popleft()
        try:
            run.send(None)
        except StopIteration as stop:
            promise.finish(stop.value)
        except Exception as error:
            promise.fail(error)
        else:
            self.ready.append((run, promise))


class BusyPolicy(SchedulerPolicy):
    """Rejects everything."""

    def start(self, machine: Runnable, event: object) -> Task:
        return REJECTED


class OtherInlinePolicy(InlinePolicy):
    """The inline policy by another name, so that machines take no shortcut."""


# Every policy whose tasks are complete on return passes the tests that take the fixture.
POLICIES = [INLINE, OtherInlinePolicy()]


@pytest.fixture(params=POLICIES, ids=["inline", "by the core"])
def policy(request: pytest.FixtureRequest) -> SchedulerPolicy:
    chosen: SchedulerPolicy = request.param
    return chosen


def reading(policy: SchedulerPolicy, n_chunks: int = 2) -> DownloadCoMachine:
    machine = DownloadCoMachine(Context(), policy)
    assert machine.dispatch(Begin(n_chunks)) is True
    return machine


def test_dispatch_runs_waiting_effects_to_their_end(policy: SchedulerPolicy) -> None:
    machine = reading(policy)
    assert machine.state is State.READING
    assert machine.context.log == ["start"]
    assert machine.dispatch(ChunkRead(b"ab")) is True
    assert machine.context.chunks == [b"ab", b"ba"]
    assert machine.state is State.DONE
    assert not machine.is_running


def test_task_is_complete_when_dispatch_async_returns(policy: SchedulerPolicy) -> None:
    machine = DownloadCoMachine(Context(), policy)
    task = machine.dispatch_async(Begin(2))
    assert task.done
    assert task.result() is True
    assert machine.state is State.READING


def test_run_that_rests_in_a_failed_state_gives_false(policy: SchedulerPolicy) -> None:
    assert reading(policy).dispatch(ReadFailed("disk")) is False
    assert reading(policy).dispatch_async(ReadFailed("disk")).result() is False
    machine = reading(policy)
    assert machine.dispatch(ChunkRead(b"")) is False
    assert machine.context.error == "empty chunk (at ChunkRead)"


def test_run_without_a_wait_gives_its_result_too(policy: SchedulerPolicy) -> None:
    machine = reading(policy)
    machine.dispatch(ReadFailed())
    assert machine.dispatch(Reset()) is True
    reading_again = reading(policy)
    reading_again.dispatch(ReadFailed())
    assert reading_again.dispatch_async(Reset()).result() is True


def test_failed_state_is_told_when_nothing_waits(policy: SchedulerPolicy) -> None:
    class PessimistMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        FAILED = frozenset({Switch.ON})
        TABLE = (Row(Switch.OFF, Flip, None, flip, Switch.ON),)

    assert PessimistMachine(SwitchContext(), policy).dispatch(Flip()) is False
    assert PessimistMachine(SwitchContext(), policy).dispatch_async(Flip()).result() is False


def test_effect_need_not_be_a_coroutine_function_to_wait(policy: SchedulerPolicy) -> None:
    machine = reading(policy)
    machine.dispatch(ReadFailed("gone"))
    assert machine.context.error == "gone"


@pytest.mark.parametrize("event", [ChunkRead(), Begin(0), "no event"])
def test_unexpected_event_is_raised_alike_by_dispatch_and_result(policy: SchedulerPolicy, event: object) -> None:
    machine = DownloadCoMachine(Context(), policy)
    before = copy.deepcopy(machine.context)
    with pytest.raises(UnexpectedEvent) as by_dispatch:
        machine.dispatch(event)
    task = machine.dispatch_async(event)
    assert task.done
    with pytest.raises(UnexpectedEvent) as by_result:
        task.result()
    with pytest.raises(UnexpectedEvent) as by_plain:
        DownloadMachine(Context()).dispatch(event)
    plain = str(by_plain.value).replace("DownloadMachine", "DownloadCoMachine")
    assert str(by_dispatch.value) == str(by_result.value) == plain
    assert machine.state is State.IDLE
    assert machine.context == before
    assert not machine.is_running


@pytest.mark.parametrize(("data", "fault"), [(b"early", "before the wait"), (b"poison", "after the wait")])
def test_effect_that_raises_leaves_the_machine_at_the_source(policy: SchedulerPolicy, data: bytes, fault: str) -> None:
    machine = reading(policy)
    with pytest.raises(ValueError, match=fault):
        machine.dispatch(ChunkRead(data))
    task = machine.dispatch_async(ChunkRead(data))
    with pytest.raises(ValueError, match=fault):
        task.result()
    assert machine.state is State.READING
    assert not machine.is_running
    assert machine.dispatch(ChunkRead()) is True


def test_plain_effect_that_raises_does_so_from_result(policy: SchedulerPolicy) -> None:
    class SwitchCoMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (Row(Switch.OFF, Flip, None, flip, Switch.ON),)

    context = SwitchContext(run=lambda: dict[str, int]()["nothing"])
    machine = SwitchCoMachine(context, policy)
    task = machine.dispatch_async(Flip())
    with pytest.raises(KeyError, match="nothing"):
        task.result()
    assert (machine.state, machine.is_running) == (Switch.OFF, False)
    context.run = lambda: machine.dispatch(Flip())
    with pytest.raises(ReentrantDispatch, match="SwitchCoMachine in OFF got Flip while it was running"):
        machine.dispatch(Flip())


def test_completion_steps_are_bounded_across_waits(policy: SchedulerPolicy) -> None:
    def is_on(context: SwitchContext, event: object) -> bool:
        return context.n_flips < 5

    async def flip_slowly(context: SwitchContext, event: object) -> None:
        await checkpoint()
        context.n_flips += 1

    class LoopMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        MAX_COMPLETIONS = 4
        TABLE = (
            Row(Switch.OFF, Flip, None, flip_slowly, Switch.ON),
            Row(Switch.ON, None, is_on, flip_slowly, Switch.ON),
        )

    machine = LoopMachine(SwitchContext(), policy)
    assert machine.dispatch(Flip()) is True
    assert machine.context.n_flips == 5

    class ShortMachine(LoopMachine):
        MAX_COMPLETIONS = 3

    short = ShortMachine(SwitchContext(), policy)
    with pytest.raises(CompletionOverflow, match="still enabled in ON after 3 completion transitions"):
        short.dispatch(Flip())
    assert short.context.n_flips == 4
    assert (short.state, short.is_running) == (Switch.ON, False)


def test_completion_steps_of_a_table_that_never_waits_are_bounded_too(policy: SchedulerPolicy) -> None:
    def is_on(context: SwitchContext, event: object) -> bool:
        return context.n_flips < 5

    class LoopMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        MAX_COMPLETIONS = 4
        TABLE = (
            Row(Switch.OFF, Flip, None, flip, Switch.ON),
            Row(Switch.ON, None, is_on, flip, Switch.ON),
        )

    assert LoopMachine(SwitchContext(), policy).dispatch(Flip()) is True

    class ShortMachine(LoopMachine):
        MAX_COMPLETIONS = 3

    short = ShortMachine(SwitchContext(), policy)
    with pytest.raises(CompletionOverflow, match="still enabled in ON after 3 completion transitions"):
        short.dispatch(Flip())
    assert (short.context.n_flips, short.state, short.is_running) == (4, Switch.ON, False)


def test_other_policies_drive_the_run_when_they_choose() -> None:
    policy = StepPolicy()
    machine = DownloadCoMachine(Context(), policy)
    task = machine.dispatch_async(Begin(2))
    assert (task.done, machine.is_running, machine.context.log) == (False, False, [])
    policy.step()
    assert (task.done, machine.is_running, machine.state) == (False, True, State.IDLE)
    assert machine.context.log == []
    policy.step()
    assert (task.done, machine.is_running, machine.state) == (True, False, State.READING)
    assert task.result() is True


def test_machine_that_waits_refuses_another_dispatch_and_goes_on() -> None:
    policy = StepPolicy()
    machine = DownloadCoMachine(Context(), policy)
    first = machine.dispatch_async(Begin(2))
    policy.step()
    second = machine.dispatch_async(Begin(3))
    policy.ready.rotate(-1)
    policy.step()
    with pytest.raises(ReentrantDispatch, match="in IDLE got Begin while it was running another event"):
        second.result()
    policy.step()
    assert first.result() is True
    assert machine.context.n_wanted == 2


def test_two_machines_interleave_under_a_policy() -> None:
    policy = StepPolicy()
    machines = [DownloadCoMachine(Context(), policy) for _ in range(2)]
    tasks = [machine.dispatch_async(Begin(2)) for machine in machines]
    policy.step()
    policy.step()
    assert [machine.is_running for machine in machines] == [True, True]
    policy.step()
    policy.step()
    assert [task.result() for task in tasks] == [True, True]


def test_run_that_is_given_up_while_it_waits_leaves_the_machine_usable() -> None:
    policy = StepPolicy()
    machine = DownloadCoMachine(Context(), policy)
    task = machine.dispatch_async(Begin(2))
    policy.step()
    run, promise = policy.ready.pop()
    run.close()
    promise.finish(False)
    assert task.result() is False
    assert (machine.state, machine.is_running) == (State.IDLE, False)


def test_busy_policy_gives_false_and_leaves_the_machine_untouched() -> None:
    machine = DownloadCoMachine(Context(), BusyPolicy())
    assert machine.dispatch(Begin(2)) is False
    assert machine.dispatch_async(Begin(2)).result() is False
    assert (machine.state, machine.context.log) == (State.IDLE, [])


def scenario(machine: Any) -> list[tuple[str, object]]:
    trace: list[tuple[str, object]] = []
    for event in (Begin(0), Begin(4), Begin(1), ChunkRead(b"ab"), ReadFailed("x"), Reset(), Begin(1), ChunkRead()):
        try:
            outcome = machine.dispatch(event)
        except UnexpectedEvent as error:
            outcome = str(error)
        trace.append((machine.state.name, outcome))
    return trace


def test_same_scenario_gives_the_same_trace_under_each_inline_driver() -> None:
    first, second = (scenario(DownloadCoMachine(Context(), policy)) for policy in POLICIES)
    assert first == second
    assert [state for state, _ in first][-1] == "DONE"
