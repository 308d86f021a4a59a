from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from emel.sm import CompletionOverflow, Machine, MachineError, ReentrantDispatch, Row, TableError, UnexpectedEvent
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadMachine,
    Flip,
    ReadFailed,
    Reset,
    State,
    Switch,
    SwitchContext,
    SwitchMachine,
)


def reading(n_chunks: int = 2) -> DownloadMachine:
    machine = DownloadMachine(Context())
    machine.dispatch(Begin(n_chunks))
    return machine


def test_machine_starts_in_its_initial_state_with_its_context() -> None:
    context = Context()
    machine = DownloadMachine(context)
    assert machine.state is State.IDLE
    assert machine.context is context
    assert not machine.is_running
    assert not machine.is_terminal
    assert repr(machine) == "<DownloadMachine IDLE>"


def test_dispatch_takes_the_row_runs_its_effect_and_returns_nothing() -> None:
    machine = DownloadMachine(Context())
    outcome: Any = machine.dispatch(Begin(2))  # type: ignore[func-returns-value]
    assert outcome is None
    assert machine.state is State.READING
    assert machine.context.n_wanted == 2


def test_dispatch_takes_completion_rows_until_none_is_enabled() -> None:
    machine = reading(2)
    machine.dispatch(ChunkRead())
    assert machine.state is State.READING
    machine.dispatch(ChunkRead())
    assert machine.state is State.DONE
    assert machine.is_terminal


def test_completion_effect_gets_the_event_that_started_the_run() -> None:
    machine = reading(1)
    machine.dispatch(ChunkRead(b""))
    assert machine.state is State.FAILED
    assert machine.context.error == "empty chunk (at ChunkRead)"


def test_rows_are_tried_in_order_and_the_first_that_holds_wins() -> None:
    machine = reading(1)
    machine.dispatch(ChunkRead(b"full"))
    assert machine.state is State.DONE
    assert machine.context.error is None


def test_machine_goes_round_through_failure_and_reset() -> None:
    machine = reading()
    machine.dispatch(ReadFailed("disk"))
    assert (machine.state, machine.context.error) == (State.FAILED, "disk")
    machine.dispatch(Reset())
    assert (machine.state, machine.context.error) == (State.IDLE, None)


def test_event_without_a_row_raises_and_changes_nothing() -> None:
    machine = reading()
    before = copy.deepcopy(machine.context)
    event = Begin(1)
    with pytest.raises(UnexpectedEvent) as caught:
        machine.dispatch(event)
    assert machine.state is State.READING
    assert machine.context == before
    error = caught.value
    assert (error.machine, error.state, error.guards) == ("DownloadMachine", State.READING, ())
    assert error.event is event
    assert error.accepted == (ChunkRead, ReadFailed) == machine.accepted
    assert str(error) == (
        "DownloadMachine in READING got unexpected Begin: no row accepts it; accepted here: ChunkRead, ReadFailed"
    )


def test_event_whose_guards_all_fail_raises_naming_them_and_changes_nothing() -> None:
    machine = DownloadMachine(Context())
    before = copy.deepcopy(machine.context)
    with pytest.raises(
        UnexpectedEvent, match=r"none of its guards holds \(is_possible\); accepted here: Begin$"
    ) as caught:
        machine.dispatch(Begin(0))
    assert machine.state is State.IDLE
    assert machine.context == before
    assert caught.value.guards == ("is_possible",)
    machine.dispatch(Begin(1))
    assert machine.state is State.READING


def test_terminal_state_accepts_nothing() -> None:
    machine = reading(1)
    machine.dispatch(ChunkRead())
    with pytest.raises(
        UnexpectedEvent, match=r"in DONE got unexpected Reset: no row accepts it; accepted here: nothing$"
    ):
        machine.dispatch(Reset())


def test_event_matches_by_its_exact_class() -> None:
    @dataclass(frozen=True, slots=True)
    class BeginTwice(Begin):
        pass

    with pytest.raises(UnexpectedEvent, match="got unexpected BeginTwice"):
        DownloadMachine(Context()).dispatch(BeginTwice(2))


@pytest.mark.parametrize("event", [None, 3, "Begin", Begin])
def test_dispatch_of_what_is_no_event_raises(event: object) -> None:
    machine = DownloadMachine(Context())
    with pytest.raises(UnexpectedEvent, match=f"got unexpected {type(event).__name__}"):
        machine.dispatch(event)
    assert machine.state is State.IDLE


def test_effect_that_raises_leaves_the_machine_at_the_source_and_usable() -> None:
    machine = reading(1)
    with pytest.raises(ValueError, match="poisoned chunk"):
        machine.dispatch(ChunkRead(b"poison"))
    assert machine.state is State.READING
    assert not machine.is_running
    machine.dispatch(ChunkRead())
    assert machine.state is State.DONE


def test_completion_effect_that_raises_leaves_the_rows_before_it_done() -> None:
    def explode(context: Context, event: object) -> None:
        raise KeyboardInterrupt

    rows = [
        Row(r.source, r.event, r.guard, explode, r.destination) if r.source is State.CHECKING else r
        for r in DownloadMachine.TABLE
    ]
    machine = type("ExplodingMachine", (DownloadMachine,), {"TABLE": tuple(rows)})(Context())
    machine.dispatch(Begin(1))
    with pytest.raises(KeyboardInterrupt):
        machine.dispatch(ChunkRead())
    assert machine.state is State.CHECKING
    assert machine.context.chunks == [b"x"]
    assert not machine.is_running


def test_guard_that_raises_changes_nothing() -> None:
    machine = DownloadMachine(Context())
    event = object.__new__(Begin)
    with pytest.raises(AttributeError, match="n_chunks"):
        machine.dispatch(event)
    assert machine.state is State.IDLE
    assert not machine.is_running


def test_dispatch_to_itself_is_refused_and_the_outer_one_goes_on() -> None:
    context = SwitchContext()
    machine = SwitchMachine(context)
    refused: list[ReentrantDispatch] = []

    def dispatch_again() -> tuple[bool, Switch]:
        with pytest.raises(ReentrantDispatch) as caught:
            machine.dispatch(Flip())
        refused.append(caught.value)
        return machine.is_running, machine.state

    context.run = dispatch_again
    machine.dispatch(Flip())
    assert context.result == (True, Switch.OFF), "during an effect the state is the source of its row"
    assert machine.state is Switch.ON
    assert context.n_flips == 1
    assert (refused[0].machine, refused[0].state, refused[0].event) == ("SwitchMachine", Switch.OFF, Flip())
    assert str(refused[0]) == (
        "SwitchMachine in OFF got Flip while it was running another event: no machine dispatches to itself, "
        "and each has one writer; return first, then dispatch"
    )


def test_machine_may_dispatch_to_another_of_its_class() -> None:
    inner = SwitchMachine(SwitchContext())
    outer = SwitchMachine(SwitchContext(run=lambda: inner.dispatch(Flip())))
    outer.dispatch(Flip())
    assert (outer.state, inner.state) == (Switch.ON, Switch.ON)


@dataclass(slots=True)
class Counter:
    n: int


def is_positive(context: Counter, event: object) -> bool:
    return context.n > 0


def count_down(context: Counter, event: object) -> None:
    context.n -= 1


class CountdownMachine(Machine[Switch, Counter]):
    """Counts down by completion rows, as no real machine should."""

    INITIAL = Switch.OFF
    MAX_COMPLETIONS = 5
    TABLE = (
        Row(Switch.OFF, Flip, None, None, Switch.ON),
        Row(Switch.ON, None, is_positive, count_down, Switch.ON),
        Row(Switch.ON, None, None, None, Switch.OFF),
    )


def test_run_may_take_as_many_completion_steps_as_the_class_allows() -> None:
    machine = CountdownMachine(Counter(4))
    machine.dispatch(Flip())
    assert (machine.state, machine.context.n) == (Switch.OFF, 0)


def test_run_that_takes_one_completion_step_more_raises_and_stops_there() -> None:
    machine = CountdownMachine(Counter(5))
    with pytest.raises(CompletionOverflow) as caught:
        machine.dispatch(Flip())
    assert (machine.state, machine.context.n) == (Switch.ON, 0)
    assert not machine.is_running
    assert (caught.value.machine, caught.value.state, caught.value.limit) == ("CountdownMachine", Switch.ON, 5)
    assert str(caught.value) == (
        "CountdownMachine did not come to rest after Flip: still enabled in ON after 5 completion transitions; "
        "make a guard end the cycle, or raise MAX_COMPLETIONS"
    )


def test_class_without_a_table_has_no_machines() -> None:
    class AbstractMachine(Machine[Switch, SwitchContext]):
        pass

    with pytest.raises(TableError, match="AbstractMachine defines no INITIAL and TABLE: only a class with a table"):
        AbstractMachine(SwitchContext())


def test_dispatch_errors_survive_pickling() -> None:
    errors = [
        UnexpectedEvent("DownloadMachine", State.IDLE, Begin(0), (Begin, ChunkRead), ("is_possible",)),
        ReentrantDispatch("DownloadMachine", State.IDLE, Begin(0)),
        CompletionOverflow("DownloadMachine", State.IDLE, Begin(0), 9),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_every_machine_error_is_one_of_a_family() -> None:
    assert issubclass(UnexpectedEvent, MachineError)
    assert issubclass(ReentrantDispatch, MachineError)
    assert issubclass(CompletionOverflow, MachineError)
    assert issubclass(TableError, MachineError)


def test_state_cannot_be_assigned() -> None:
    machine = SwitchMachine(SwitchContext())
    with pytest.raises(AttributeError, match="state"):
        machine.state = Switch.ON  # type: ignore[misc]
    assert machine.state is Switch.OFF
