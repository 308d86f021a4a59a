from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import CoMachine, MachineError, ReentrantDispatch, RefusedTrap, Row, Task
from emel.sm.fifo import FifoPolicy
from emel.sm.traps import checkpoint, run_lanes

if TYPE_CHECKING:
    from collections.abc import Callable


class State(Enum):
    READY = "ready"
    WALKED = "walked"


@dataclass(frozen=True, slots=True)
class Walk:
    """Take steps, waiting after each."""

    n_steps: int = 1


@dataclass(slots=True)
class Context:
    name: str
    log: list[str] = field(default_factory=list)
    act: Callable[[], object] = int  # what the walker does before its first step
    n_refused: int = 0


async def walk(context: Context, event: Walk) -> None:
    """Steps."""
    context.act()
    for step in range(event.n_steps):
        context.log.append(f"{context.name}{step}")
        await checkpoint()


class Walker(CoMachine[State, Context]):
    """Walks."""

    INITIAL = State.READY
    TABLE = (
        Row(State.READY, Walk, None, walk, State.WALKED),
        Row(State.WALKED, None, None, None, State.READY),
    )


def test_fifo_completes_a_dispatch_on_return() -> None:
    walker = Walker(Context("a"), FifoPolicy())
    task = walker.dispatch_async(Walk(3))
    assert (task.done, task.result(), walker.context.log) == (True, True, ["a0", "a1", "a2"])
    assert walker.dispatch(Walk()) is True


def test_busy_fifo_rejects_at_once_and_leaves_the_machine_untouched() -> None:
    policy = FifoPolicy()
    other = Walker(Context("b"), policy)
    answers: list[object] = []

    def interfere() -> None:
        answers.append(other.dispatch(Walk()))
        answers.append(other.dispatch_async(Walk()).result())
        answers.append(policy.try_run_immediate(other, Walk()))

    walker = Walker(Context("a", act=interfere), policy)
    assert walker.dispatch(Walk()) is True
    assert answers == [False, False, False]
    assert (other.state, other.context.log, other.is_running) == (State.READY, [], False)
    assert policy.try_run_immediate(other, Walk()) is True


def test_busy_fifo_rejects_other_threads_too() -> None:
    policy = FifoPolicy()
    other = Walker(Context("b"), policy)
    answers: list[object] = []

    def interfere() -> None:
        def from_outside() -> None:
            answers.append(other.dispatch(Walk()))
            answers.append(policy.schedule(other, Walk()).result())

        thread = threading.Thread(target=from_outside)
        thread.start()
        thread.join()

    assert Walker(Context("a", act=interfere), policy).dispatch(Walk()) is True
    assert answers == [False, False]
    assert other.context.log == []


def test_scheduled_machines_run_in_strict_order_before_the_outer_dispatch_returns() -> None:
    policy = FifoPolicy()
    log: list[str] = []
    others = [Walker(Context(name, log), policy) for name in "bc"]
    tasks: list[Task] = []
    walker = Walker(Context("a", log, lambda: tasks.extend(policy.schedule(each, Walk(2)) for each in others)), policy)
    assert walker.dispatch(Walk(3)) is True
    assert log == ["a0", "b0", "c0", "a1", "b1", "c1", "a2"]
    assert [task.result() for task in tasks] == [True, True]


def test_schedule_on_an_idle_fifo_runs_at_once() -> None:
    policy = FifoPolicy()
    walker = Walker(Context("a"), policy)
    assert policy.schedule(walker, Walk(2)).result() is True
    assert walker.context.log == ["a0", "a1"]


def test_fifo_refuses_more_ready_machines_than_it_holds() -> None:
    policy = FifoPolicy(n_ready=3)
    others = [Walker(Context(name), policy) for name in "bcd"]
    tasks: list[Task] = []
    walker = Walker(Context("a", act=lambda: tasks.extend(policy.schedule(each, Walk()) for each in others)), policy)
    assert walker.dispatch(Walk()) is True
    assert [task.result() for task in tasks] == [True, True, False]
    assert others[2].context.log == []


def test_fifo_refuses_the_trap_after_the_last_step() -> None:
    policy = FifoPolicy(n_steps=4)
    walker = Walker(Context("a"), policy)
    assert walker.dispatch(Walk(4)) is True
    with pytest.raises(RefusedTrap, match="Walker's Walk has waited 4 times, which is all its fifo policy allows"):
        walker.dispatch(Walk(5))
    assert (walker.state, walker.is_running) == (State.READY, False)
    assert walker.dispatch(Walk(4)) is True


def test_fifo_refuses_a_machine_that_dispatches_to_itself() -> None:
    caught: list[BaseException] = []

    def dispatch_to_itself() -> None:
        with pytest.raises(ReentrantDispatch, match="Walker in READY got Walk while it was running") as error:
            walker.dispatch(Walk())
        caught.append(error.value)

    walker = Walker(Context("a", act=dispatch_to_itself), FifoPolicy())
    assert walker.dispatch(Walk()) is True
    assert len(caught) == 1


def test_fifo_runs_lanes_in_order_and_refuses_what_is_no_trap() -> None:
    async def fork(context: Context, event: object) -> None:
        context.log.extend(await run_lanes([lambda: "x", lambda: "y"]))

    def yield_nonsense(context: Context, event: object) -> Any:
        yield 3

    class Forker(CoMachine[State, Context]):
        INITIAL = State.READY
        TABLE = (
            Row(State.READY, Walk, None, fork, State.WALKED),
            Row(State.WALKED, Walk, None, yield_nonsense, State.READY),
        )

    forker = Forker(Context("a"), FifoPolicy())
    assert forker.dispatch(Walk()) is True
    assert forker.context.log == ["x", "y"]
    with pytest.raises(RefusedTrap, match="an effect yielded 3"):
        forker.dispatch(Walk())
    assert forker.state is State.WALKED


def test_interrupted_fifo_gives_up_what_was_ready_and_goes_on() -> None:
    policy = FifoPolicy()
    log: list[str] = []
    tasks: list[Task] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    others = [Walker(Context("b", log), policy), Walker(Context("c", log, act=interrupt), policy)]
    walker = Walker(Context("a", log, lambda: tasks.extend(policy.schedule(each, Walk(9)) for each in others)), policy)
    with pytest.raises(KeyboardInterrupt):
        walker.dispatch(Walk(9))
    for task in tasks:
        with pytest.raises(MachineError, match="Walker's Walk was given up: the fifo policy was interrupted"):
            task.result()
    assert log == ["a0", "b0"]
    assert [each.is_running for each in (walker, *others)] == [False, False, False]
    others[1].context.act = int
    assert others[1].dispatch(Walk()) is True


@pytest.mark.parametrize(("n_ready", "n_steps"), [(0, 1), (1, 0)])
def test_fifo_that_could_run_nothing_is_refused(n_ready: int, n_steps: int) -> None:
    with pytest.raises(ValueError, match="could run nothing: at least 1 each"):
        FifoPolicy(n_ready, n_steps)


def test_fifo_holds_sixteen_machines_and_sixty_four_steps_unless_told_otherwise() -> None:
    policy = FifoPolicy()
    others = [Walker(Context("b"), policy) for _ in range(16)]
    tasks: list[Task] = []
    walker = Walker(Context("a", act=lambda: tasks.extend(policy.schedule(each, Walk()) for each in others)), policy)
    assert walker.dispatch(Walk(64)) is True
    assert [task.result() for task in tasks] == [True] * 15 + [False]
    with pytest.raises(RefusedTrap, match="has waited 64 times"):
        walker.dispatch(Walk(65))
