"""What holds for every machine of EMEL, whatever it does; it needs only the tables.

To visit every state with every event without a real context, a machine is placed into the state directly, and its table
is replayed with guards and effects that the test rules: `Replay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import BaseMachine, CoMachine, Row, UnexpectedEvent
from emel.sm.analysis import (
    dead_states,
    event_classes,
    functions,
    impure_guards,
    unreachable_states,
)
from emel.sm.registry import machine_classes
from emel.sm.row import name_of
from unit.sm import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from emel.sm.row import AnyRow

MachineClass = type[BaseMachine[Any, Any]]
SAMPLES: list[MachineClass] = [samples.DownloadMachine, samples.DownloadCoMachine, samples.SwitchMachine]
MACHINES = machine_classes() + SAMPLES

every_machine = pytest.mark.parametrize("machine_class", MACHINES, ids=lambda each: each.__name__)


class Untouchable:
    """A context that nothing may read, write or delete."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> object:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"the context was touched: {name}")


class Replay:
    """The table of a machine class with ruled guards and recording effects, as a class of its own."""

    def __init__(self, machine_class: MachineClass) -> None:
        self.holding: AnyRow[Any, Any] | None = None  # the only row whose guard holds; None: none does
        self.taken: list[AnyRow[Any, Any]] = []
        # Completion rows are left out, so that a replay stops after the row under test.
        self.rows = [row for row in machine_class.TABLE if row.event is not None]
        table = tuple(
            Row(row.source, row.event, self._guard(row), self._effect(row), row.destination) for row in self.rows
        )
        self.machine_class: Any = type(f"Replayed{machine_class.__name__}", (machine_class,), {"TABLE": table})

    def _guard(self, row: AnyRow[Any, Any]) -> Callable[[Any, Any], bool] | None:
        def ruled(context: object, event: object) -> bool:
            return self.holding is row

        return None if row.guard is None else ruled

    def _effect(self, row: AnyRow[Any, Any]) -> Callable[[Any, Any], None]:
        def record(context: object, event: object) -> None:
            self.taken.append(row)

        return record


def place(machine_class: Any, state: Enum) -> Any:
    """A machine in `state`, past its own construction, whose context must not be touched."""
    machine = object.__new__(machine_class)
    BaseMachine.__init__(machine, Untouchable())
    if issubclass(machine_class, CoMachine):
        CoMachine.__init__(machine, Untouchable())
    machine._node = machine_class.NODES[state]
    machine._accepts = machine._node.accepts
    return machine


def blank(event_class: type | None) -> Any:
    """An event without its fields: only its class matters to a table."""
    assert event_class is not None
    return object.__new__(event_class)


@every_machine
def test_event_without_a_row_is_refused_and_changes_nothing(machine_class: MachineClass) -> None:
    n_pairs = 0
    for state in machine_class.STATES:
        accepted = {row.event for row in machine_class.TABLE if row.source is state}
        for event_class in event_classes(machine_class):
            if event_class in accepted:
                continue
            n_pairs += 1
            machine = place(machine_class, state)
            context = machine.context
            with pytest.raises(UnexpectedEvent, match=f"in {state.name} got unexpected {event_class.__name__}: no row"):
                machine.dispatch(blank(event_class))
            assert machine.state is state
            assert machine.context is context
            assert not machine.is_running
    n_all = len(machine_class.STATES) * len(event_classes(machine_class))
    n_rows = len({(row.source, row.event) for row in machine_class.TABLE if row.event is not None})
    assert n_pairs == n_all - n_rows


@every_machine
def test_event_whose_guards_all_fail_is_refused_and_changes_nothing(machine_class: MachineClass) -> None:
    replay = Replay(machine_class)
    for state in machine_class.STATES:
        for event_class in event_classes(machine_class):
            rows = [row for row in replay.rows if row.source is state and row.event is event_class]
            if not rows or rows[-1].guard is None:
                continue
            machine = place(replay.machine_class, state)
            with pytest.raises(UnexpectedEvent, match="none of its guards holds"):
                machine.dispatch(blank(event_class))
            assert machine.state is state
            assert not machine.is_running
    assert replay.taken == []


@every_machine
def test_every_row_of_an_event_fires_when_its_guard_is_the_one_that_holds(machine_class: MachineClass) -> None:
    replay = Replay(machine_class)
    for row in replay.rows:
        replay.holding = row
        machine = place(replay.machine_class, row.source)
        machine.dispatch(blank(row.event))
        assert replay.taken.pop() is row
        assert machine.state is row.destination
    assert replay.taken == []


@every_machine
def test_every_state_can_be_reached(machine_class: MachineClass) -> None:
    assert unreachable_states(machine_class) == ()


@every_machine
def test_no_state_is_dead_unless_it_is_declared_terminal(machine_class: MachineClass) -> None:
    assert dead_states(machine_class) == ()


@every_machine
def test_guards_assign_nothing(machine_class: MachineClass) -> None:
    assert impure_guards(machine_class) == ()


@every_machine
def test_table_fits_a_page(machine_class: MachineClass) -> None:
    assert len(machine_class.TABLE) <= 40


@every_machine
def test_machine_and_everything_in_its_table_says_what_it_is_for(machine_class: MachineClass) -> None:
    named = [machine_class, *functions(machine_class, "guard"), *functions(machine_class, "effect")]
    assert [name_of(each) for each in named if not (each.__doc__ or "").strip()] == []
    events = event_classes(machine_class)
    assert [each.__name__ for each in events if (each.__doc__ or "").startswith(f"{each.__name__}(")] == []


def test_every_kind_of_machine_is_among_them() -> None:
    assert any(issubclass(each, CoMachine) for each in MACHINES)
    assert len(set(MACHINES)) == len(MACHINES) > len(SAMPLES)
