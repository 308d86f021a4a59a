from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from emel.sm import (
    CoMachine,
    FramePool,
    FramesExhausted,
    MachineError,
    ReentrantDispatch,
    Row,
    SourceNeverFired,
    UnexpectedEvent,
)
from emel.sm.external import ExternalCompletionPolicy, SourceFired
from emel.sm.traps import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class State(Enum):
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Probe:
    """Do what the context says."""


@dataclass(slots=True)
class Context:
    act: Callable[[], object] = int
    react: Callable[[int], object] = int
    log: list[object] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)


async def probe(context: Context, event: Probe) -> None:
    """Acts."""
    context.log.append("probe")
    context.act()
    await checkpoint()


def deliver(context: Context, event: SourceFired) -> None:
    """Notes the source."""
    context.log.append(event.source_index)
    context.threads.add(threading.get_ident())
    context.react(event.source_index)


class Window(CoMachine[State, Context]):
    """Waits for sources."""

    INITIAL = State.READY
    TABLE = (
        Row(State.READY, Probe, None, probe, State.READY),
        Row(State.READY, SourceFired, None, deliver, State.READY),
    )


def window(policy: ExternalCompletionPolicy, n_required: int = 0) -> Window:
    """A machine whose probe arms and requires that many sources."""

    def arm_and_require() -> None:
        for index in range(n_required):
            policy.arm(index)
            policy.require(index)

    return Window(Context(arm_and_require), policy)


def fire_later(policy: ExternalCompletionPolicy, *indices: int) -> threading.Thread:
    def fire() -> None:
        for index in indices:
            while not policy.fire(index):
                time.sleep(0.001)

    thread = threading.Thread(target=fire)
    thread.start()
    return thread


def test_required_sources_are_delivered_before_the_dispatch_returns() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 3)
    for _ in range(3):  # sources are idle again afterwards
        machine.context.log.clear()
        producer = fire_later(policy, 2, 1, 0)
        assert machine.dispatch(Probe()) is True
        producer.join()
        assert machine.context.log == ["probe", 0, 1, 2]
    assert machine.context.threads == {threading.get_ident()}
    policy.close()


def test_task_is_complete_when_dispatch_async_returns() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 1)
    producer = fire_later(policy, 0)
    task = machine.dispatch_async(Probe())
    producer.join()
    assert (task.done, task.result(), machine.context.log) == (True, True, ["probe", 0])


def test_order_of_delivery_is_not_that_of_the_producers() -> None:
    policy = ExternalCompletionPolicy(3)
    machine = Window(Context(), policy)

    def fire_in_another_order() -> None:
        for index in (2, 0, 1):
            policy.arm(index)
            policy.require(index)
            assert policy.fire(index)
            assert not policy.fire(index)  # once

    machine.context.act = fire_in_another_order
    assert machine.dispatch(Probe()) is True
    assert machine.context.log == ["probe", 0, 1, 2]


def test_what_fired_in_the_background_is_delivered_before_the_next_event() -> None:
    policy = ExternalCompletionPolicy()
    machine = Window(Context(), policy)
    for index in (7, 5):
        policy.arm(index, machine)
        assert policy.fire(index)
    policy.arm(3, machine)  # still armed: nobody waits for it
    assert machine.dispatch(Probe()) is True
    assert machine.context.log == [5, 7, "probe"]
    assert policy.fire(3)
    assert machine.dispatch(Probe()) is True
    assert machine.context.log == [5, 7, "probe", 3, "probe"]


def test_completion_goes_to_the_machine_that_armed_the_source() -> None:
    policy = ExternalCompletionPolicy()
    first, second = Window(Context(), policy), Window(Context(), policy)
    first.context.act = lambda: policy.arm(1)
    assert first.dispatch(Probe()) is True
    assert policy.fire(1)
    assert second.dispatch(Probe()) is True
    assert (first.context.log, second.context.log) == (["probe", 1], ["probe"])


def test_nested_dispatch_neither_sweeps_nor_parks() -> None:
    policy = ExternalCompletionPolicy()
    inner, outer = window(policy, 1), Window(Context(), policy)

    def nest() -> None:
        policy.arm(9, outer)
        policy.fire(9)
        assert inner.dispatch(Probe()) is True
        outer.context.log.append("after inner")
        assert inner.context.log == ["probe"]
        policy.fire(0)

    outer.context.act = nest
    assert outer.dispatch(Probe()) is True
    assert inner.context.log == ["probe", 0]
    assert outer.context.log == ["probe", "after inner"]
    outer.context.act = int
    assert outer.dispatch(Probe()) is True
    assert outer.context.log[-2:] == [9, "probe"]


def test_completion_may_require_further_sources() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 1)

    def chain(index: int) -> None:
        if index < 3:
            policy.arm(index + 1)
            policy.require(index + 1)
            policy.fire(index + 1)

    machine.context.react = chain
    producer = fire_later(policy, 0)
    assert machine.dispatch(Probe()) is True
    producer.join()
    assert machine.context.log == ["probe", 0, 1, 2, 3]


def test_result_tells_of_a_failed_completion() -> None:
    class FailingWindow(Window):
        FAILED = frozenset({State.READY})

    policy = ExternalCompletionPolicy()
    machine = FailingWindow(Context(), policy)
    assert machine.dispatch(Probe()) is False

    good = Window(Context(), policy)

    def require_of_the_failing_one() -> None:
        policy.arm(0, machine)
        policy.require(0)
        policy.fire(0)

    good.context.act = require_of_the_failing_one
    assert good.dispatch(Probe()) is False


def test_aborted_dispatch_does_not_block_the_next_one() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 1)

    def require_and_fail() -> None:
        policy.arm(0)
        policy.require(0)
        raise OSError("no disk")

    machine.context.act = require_and_fail
    with pytest.raises(OSError, match="no disk"):
        machine.dispatch(Probe())
    with pytest.raises(MachineError, match="source 0 is armed: a source is for one completion at a time"):
        machine.dispatch_async(Probe()).result()
    machine.context.act = int
    assert machine.dispatch(Probe()) is True
    policy.fire(0)
    assert machine.dispatch(Probe()) is True
    assert machine.context.log[-2:] == [0, "probe"]


def test_dispatch_from_another_thread_is_rejected_meanwhile() -> None:
    policy = ExternalCompletionPolicy()
    machine, other = window(policy, 1), Window(Context(), policy)
    answers: list[bool] = []

    def interfere() -> None:
        while not machine.context.log:
            time.sleep(0.001)
        answers.append(other.dispatch(Probe()))
        answers.append(other.dispatch_async(Probe()).result())
        with pytest.raises(MachineError, match="was required outside of a dispatch"):
            policy.require(0)
        with pytest.raises(MachineError, match="was armed outside of a dispatch: say for which machine"):
            policy.arm(5)
        while not policy.fire(0):
            time.sleep(0.001)

    thread = threading.Thread(target=interfere)
    thread.start()
    assert machine.dispatch(Probe()) is True
    thread.join()
    assert answers == [False, False]
    assert other.context.log == []


def test_machine_that_dispatches_to_itself_is_told() -> None:
    policy = ExternalCompletionPolicy()
    machine = Window(Context(), policy)

    def dispatch_to_itself() -> None:
        with pytest.raises(ReentrantDispatch):
            machine.dispatch(Probe())

    machine.context.act = dispatch_to_itself
    assert machine.dispatch(Probe()) is True


def test_error_of_an_event_is_raised_by_its_result() -> None:
    machine = Window(Context(), ExternalCompletionPolicy())
    with pytest.raises(UnexpectedEvent):
        machine.dispatch("no event")
    with pytest.raises(UnexpectedEvent):
        machine.dispatch_async("no event").result()


def test_idle_source_can_be_neither_fired_nor_required() -> None:
    policy = ExternalCompletionPolicy()
    assert not policy.fire(0)
    machine = Window(Context(lambda: policy.require(0)), policy)
    with pytest.raises(SourceNeverFired, match="source 0 is required but not armed: nothing would ever fire it"):
        machine.dispatch(Probe())
    with pytest.raises(MachineError, match="source 0 was required outside of a dispatch"):
        policy.require(0)


def test_source_that_fired_is_not_armed_again_before_its_delivery() -> None:
    policy = ExternalCompletionPolicy()
    machine = Window(Context(), policy)
    policy.arm(0, machine)
    policy.fire(0)
    with pytest.raises(MachineError, match="source 0 is fired and not delivered"):
        policy.arm(0, machine)


def test_parked_dispatch_raises_when_the_policy_is_closed() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 2)
    errors: list[str] = []

    def shut_down() -> None:
        while not policy.fire(0):
            time.sleep(0.001)
        while 0 not in machine.context.log:
            time.sleep(0.001)
        try:
            policy.close()
        except SourceNeverFired as error:
            errors.append(str(error))

    thread = threading.Thread(target=shut_down)
    thread.start()
    with pytest.raises(SourceNeverFired, match="source 1 is required and can never fire: the policy was closed"):
        machine.dispatch(Probe())
    thread.join()
    assert errors == ["the policy was closed while source 1 is armed: fire or disarm every source before"]
    assert not machine.is_running
    assert machine.dispatch(Probe()) is False
    assert machine.dispatch_async(Probe()).result() is False


def test_parked_dispatch_raises_when_its_source_is_given_up() -> None:
    policy = ExternalCompletionPolicy()
    machine = window(policy, 1)

    def give_up() -> None:
        while not machine.context.log:
            time.sleep(0.001)
        time.sleep(0.01)
        policy.disarm(0)

    thread = threading.Thread(target=give_up)
    thread.start()
    with pytest.raises(SourceNeverFired, match="source 0 is required and can never fire: it was disarmed"):
        machine.dispatch(Probe())
    thread.join()
    assert not policy.fire(0)
    policy.close()


def test_source_disarmed_by_an_earlier_delivery_is_not_delivered() -> None:
    policy = ExternalCompletionPolicy()
    machine = Window(Context(react=lambda index: policy.disarm(2)), policy)
    for index in (1, 2):
        policy.arm(index, machine)
        policy.fire(index)
    assert machine.dispatch(Probe()) is True
    assert machine.context.log == [1, "probe"]


def test_completion_without_a_frame_is_kept_for_later() -> None:
    frames = FramePool(1)
    policy = ExternalCompletionPolicy()
    machine = Window(Context(), policy, frames)
    policy.arm(0, machine)
    policy.fire(0)
    frame = frames.take(machine)
    assert frame is not None
    assert machine.dispatch(Probe()) is False  # rejected: neither the completion nor the event has run
    assert machine.context.log == []
    frames.give(frame)
    assert machine.dispatch(Probe()) is True
    assert machine.context.log == [0, "probe"]


def test_required_completion_without_a_frame_is_an_error_that_says_so() -> None:
    frames = FramePool(1)
    policy = ExternalCompletionPolicy()
    receiver = Window(Context(), policy, frames)
    frame = frames.take(receiver)
    assert frame is not None

    def require_of_the_receiver() -> None:
        policy.arm(0, receiver)
        policy.require(0)
        policy.fire(0)

    machine = Window(Context(require_of_the_receiver), policy)
    with pytest.raises(FramesExhausted, match="source 0 is required, but no frame is free for its completion"):
        machine.dispatch(Probe())
    frames.give(frame)
    machine.context.act = int
    assert machine.dispatch(Probe()) is True
    assert receiver.context.log == [0]


def test_closing_names_the_sources_nobody_fired() -> None:
    policy = ExternalCompletionPolicy()
    machine = Window(Context(), policy)
    for index in (1, 4):
        policy.arm(index, machine)
    with pytest.raises(SourceNeverFired, match="closed while sources 1, 4 are armed"):
        policy.close()
    policy.close()
    assert not policy.fire(1)
    with pytest.raises(MachineError, match="source 2 cannot be armed: its policy is closed"):
        policy.arm(2, machine)


@pytest.mark.parametrize("index", [-1, 2])
def test_unknown_source_is_refused(index: int) -> None:
    policy = ExternalCompletionPolicy(2)
    with pytest.raises(IndexError, match=f"there is no source {index}: sources are 0 to 1"):
        policy.fire(index)


@pytest.mark.parametrize("n_sources", [0, 65])
def test_number_of_sources_is_bounded(n_sources: int) -> None:
    with pytest.raises(ValueError, match=f"{n_sources} sources were asked for: 1 to 64 are allowed"):
        ExternalCompletionPolicy(n_sources)


def test_producers_race_and_every_round_is_delivered_in_order() -> None:
    n_producers, n_rounds = 4, 200
    policy = ExternalCompletionPolicy(n_producers)
    machine = window(policy, n_producers)

    def fire_often(index: int) -> None:
        for _ in range(n_rounds):
            fire_once(policy, index)

    producers = [threading.Thread(target=fire_often, args=(index,)) for index in range(n_producers)]
    for thread in producers:
        thread.start()
    for _ in range(n_rounds):
        machine.context.log.clear()
        assert machine.dispatch(Probe()) is True
        assert machine.context.log == ["probe", *range(n_producers)]
    for thread in producers:
        thread.join()
    policy.close()


def fire_once(policy: ExternalCompletionPolicy, index: int) -> None:
    while not policy.fire(index):
        time.sleep(0)
