from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import CoMachine, MachineError, Row, UnexpectedEvent
from emel.sm.machine import definition_hooks
from emel.sm.trace import Transition, trace
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadCoMachine,
    DownloadMachine,
    Flip,
    ReadFailed,
    State,
    Switch,
    SwitchContext,
    SwitchMachine,
    flip,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.sm import BaseMachine

DOWNLOAD = [
    ("DownloadMachine", "IDLE", "Begin", False, "is_possible", "start", "READING"),
    ("DownloadMachine", "READING", "ChunkRead", False, None, "store", "READING"),
    ("DownloadMachine", "READING", "ChunkRead", True, "has_all", None, "CHECKING"),
    ("DownloadMachine", "CHECKING", "ChunkRead", True, "is_intact", None, "DONE"),
]


def row_of(each: Transition) -> tuple[object, ...]:
    return (
        each.machine,
        each.source,
        each.event,
        each.is_completion,
        each.guard,
        each.effect,
        each.destination,
    )


def download(machine: BaseMachine[Any, Any] | None = None) -> None:
    machine = DownloadMachine(Context()) if machine is None else machine
    assert isinstance(machine, DownloadMachine | DownloadCoMachine)
    machine.dispatch(Begin(1))
    machine.dispatch(ChunkRead())
    assert machine.state is State.DONE


def compiled_effects(machine_class: type[BaseMachine[Any, Any]]) -> list[Callable[..., Any] | None]:
    """Every effect as dispatch would call it, in the order of the table's rows."""
    found = []
    for node in machine_class.NODES.values():
        for steps in (*node.accepts.values(), node.completions):
            found += [effect for _, effect, _ in steps]
    return found


def test_trace_records_every_row_taken_in_order() -> None:
    seen: list[Transition] = []
    with trace(seen.append):
        download()
    assert [row_of(each) for each in seen] == DOWNLOAD
    assert {each.thread_id for each in seen} == {threading.get_ident()}
    assert {each.error for each in seen} == {None}
    assert all(each.duration_ns >= 0 for each in seen)
    assert [each.begin_ns for each in seen] == sorted(each.begin_ns for each in seen)


def test_trace_covers_a_machine_that_is_there_already_and_ends_with_its_block() -> None:
    seen: list[Transition] = []
    machine = SwitchMachine(SwitchContext())
    machine.dispatch(Flip())
    with trace(seen.append):
        machine.dispatch(Flip())
    machine.dispatch(Flip())
    assert [each.source for each in seen] == ["ON"]


def test_trace_covers_a_class_defined_while_it_runs() -> None:
    seen: list[Transition] = []
    with trace(seen.append):
        late = type("LateMachine", (SwitchMachine,), {"INITIAL": Switch.ON})
        late(SwitchContext()).dispatch(Flip())
    late(SwitchContext()).dispatch(Flip())
    assert [each.machine for each in seen] == ["LateMachine"]
    assert definition_hooks == []


def test_nothing_is_left_of_a_trace_when_it_is_off() -> None:
    before = compiled_effects(DownloadMachine)
    with trace(lambda transition: None):
        assert all(each not in before for each in compiled_effects(DownloadMachine))
    assert compiled_effects(DownloadMachine) == before


def test_trace_of_one_machine_leaves_the_others_alone() -> None:
    seen: list[Transition] = []
    one, other = SwitchMachine(SwitchContext()), SwitchMachine(SwitchContext())
    one.dispatch(Flip())
    with trace(seen.append, one):
        other.dispatch(Flip())
        one.dispatch(Flip())
        one.dispatch(Flip())
    one.dispatch(Flip())
    assert [each.source for each in seen] == ["ON", "OFF"]
    assert one.state is Switch.OFF


def test_traces_nest_and_each_sink_gets_its_own_share() -> None:
    everything: list[Transition] = []
    mine: list[Transition] = []
    again: list[Transition] = []
    one, other = SwitchMachine(SwitchContext()), SwitchMachine(SwitchContext())
    with trace(mine.append, one), trace(everything.append), trace(again.append, one):
        one.dispatch(Flip())
        other.dispatch(Flip())
    assert (len(everything), len(mine), len(again)) == (2, 1, 1)


def test_traces_may_overlap_in_any_order() -> None:
    first: list[Transition] = []
    second: list[Transition] = []
    machine = SwitchMachine(SwitchContext())
    outer, inner = trace(first.append), trace(second.append, machine)
    outer.__enter__()
    inner.__enter__()
    machine.dispatch(Flip())
    outer.__exit__(None, None, None)
    machine.dispatch(Flip())
    inner.__exit__(None, None, None)
    machine.dispatch(Flip())
    assert (len(first), len(second)) == (1, 2)


def test_trace_numbers_contexts_as_it_meets_them() -> None:
    seen: list[Transition] = []
    machines = [SwitchMachine(SwitchContext()) for _ in range(3)]
    with trace(seen.append):
        for index in (2, 0, 2, 1):
            machines[index].dispatch(Flip())
    assert [each.context_index for each in seen] == [0, 1, 0, 2]


def test_nested_dispatch_is_recorded_before_and_lies_within() -> None:
    seen: list[Transition] = []
    inner = DownloadMachine(Context())
    outer = SwitchMachine(SwitchContext(run=lambda: inner.dispatch(Begin(1))))
    with trace(seen.append):
        outer.dispatch(Flip())
    nested, outermost = seen
    assert (nested.machine, outermost.machine) == ("DownloadMachine", "SwitchMachine")
    assert outermost.begin_ns <= nested.begin_ns
    assert nested.begin_ns + nested.duration_ns <= outermost.begin_ns + outermost.duration_ns


def test_effect_that_raises_is_recorded_with_its_error_and_raises_as_ever() -> None:
    seen: list[Transition] = []
    machine = DownloadMachine(Context())
    machine.dispatch(Begin(1))
    with trace(seen.append), pytest.raises(ValueError, match="poisoned chunk"):
        machine.dispatch(ChunkRead(b"poison"))
    assert [(each.effect, each.error) for each in seen] == [("store", "ValueError('poisoned chunk')")]
    assert machine.state is State.READING


def test_unexpected_event_is_no_transition() -> None:
    seen: list[Transition] = []
    with trace(seen.append), pytest.raises(UnexpectedEvent, match=r"accepted here: Begin$"):
        DownloadMachine(Context()).dispatch(ReadFailed())
    assert seen == []


def test_waiting_effects_are_recorded_when_their_wait_is_over() -> None:
    seen: list[Transition] = []
    machine = DownloadCoMachine(Context())
    with trace(seen.append):
        download(machine)
    assert machine.context.chunks == [b"x", b"x"]
    assert [(each.effect, each.destination) for each in seen] == [
        ("start_slowly", "READING"),
        ("store_in_lanes", "READING"),
        (None, "CHECKING"),
        (None, "DONE"),
    ]


def test_waiting_effect_that_raises_is_recorded_with_its_error() -> None:
    seen: list[Transition] = []
    machine = DownloadCoMachine(Context())
    machine.dispatch(Begin(2))
    with trace(seen.append, machine), pytest.raises(ValueError, match="after the wait"):
        machine.dispatch(ChunkRead(b"poison"))
    assert [each.error for each in seen] == ["ValueError('poisoned after the wait')"]


def test_sink_that_raises_stops_recording_but_no_machine() -> None:
    n_calls = []

    def sink(transition: Transition) -> None:
        n_calls.append(transition)
        raise OSError("disk full")

    machine = SwitchMachine(SwitchContext())
    block = trace(sink)
    block.__enter__()
    machine.dispatch(Flip())
    machine.dispatch(Flip())
    with pytest.raises(OSError, match="disk full"):
        block.__exit__(None, None, None)
    assert machine.context.n_flips == 2
    assert len(n_calls) == 1


def test_error_of_the_block_wins_over_that_of_the_sink() -> None:
    def sink(transition: Transition) -> None:
        raise OSError("disk full")

    def interrupt() -> None:
        SwitchMachine(SwitchContext()).dispatch(Flip())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), trace(sink):
        interrupt()


def test_trace_of_a_running_machine_is_refused() -> None:
    context = SwitchContext()
    machine = SwitchMachine(context)

    def begin_trace() -> None:
        with trace(lambda transition: None, machine):
            raise AssertionError("never here")

    context.run = begin_trace
    with pytest.raises(MachineError, match="<SwitchMachine OFF> is running an event: begin and end its trace between"):
        machine.dispatch(Flip())
    context.run = int
    seen: list[Transition] = []
    with trace(seen.append, machine):
        machine.dispatch(Flip())
    assert len(seen) == 1


def test_trace_that_ends_while_its_machine_runs_is_an_error_and_records_no_more() -> None:
    seen: list[Transition] = []
    context = SwitchContext()
    machine = SwitchMachine(context)
    block = trace(seen.append, machine)
    block.__enter__()
    context.run = lambda: block.__exit__(None, None, None)
    with pytest.raises(MachineError, match="begin and end its trace between two dispatches"):
        machine.dispatch(Flip())
    seen.clear()
    context.run = int
    machine.dispatch(Flip())
    assert seen == []
    assert machine.state is Switch.ON


def test_trace_sees_transitions_of_other_threads() -> None:
    seen: list[Transition] = []
    machine = SwitchMachine(SwitchContext())
    with trace(seen.append):
        thread = threading.Thread(target=machine.dispatch, args=(Flip(),))
        thread.start()
        thread.join()
    assert [each.thread_id == threading.get_ident() for each in seen] == [False]


def test_coroutine_machine_without_waits_is_traced_like_a_plain_one() -> None:
    class SwitchCoMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (Row(Switch.OFF, Flip, None, flip, Switch.ON),)

    seen: list[Transition] = []
    with trace(seen.append):
        assert SwitchCoMachine(SwitchContext()).dispatch(Flip()) is True
    assert [each.effect for each in seen] == ["flip"]
