from __future__ import annotations

from enum import Enum
from typing import Any

from emel.sm import Machine, Row
from emel.sm.analysis import (
    dead_states,
    event_classes,
    functions,
    impure_guards,
    passing_states,
    unreachable_states,
)
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadMachine,
    ReadFailed,
    Reset,
    State,
    SwitchMachine,
    has_all,
    is_possible,
)


class Map(Enum):
    HOME = 0
    ROAD = 1
    TOWN = 2
    TRAP = 3
    ISLAND = 4
    REEF = 5


class MapMachine(Machine[Map, Context]):
    """Has a trap that only leads to itself, and an island and a reef that nothing leads to."""

    INITIAL = Map.HOME
    TERMINAL = frozenset({Map.TOWN})
    TABLE = (
        Row(Map.HOME, Begin, None, None, Map.ROAD),
        Row(Map.ROAD, None, has_all, None, Map.TOWN),
        Row(Map.ROAD, None, None, None, Map.TRAP),
        Row(Map.TRAP, Begin, None, None, Map.TRAP),
        Row(Map.ISLAND, Begin, None, None, Map.REEF),
        Row(Map.REEF, Begin, None, None, Map.ISLAND),
    )


def test_event_classes_are_those_of_the_table_each_once() -> None:
    assert event_classes(DownloadMachine) == (Begin, ChunkRead, ReadFailed, Reset)


def test_functions_are_those_of_the_table_each_once() -> None:
    assert [each.__name__ for each in functions(DownloadMachine, "guard")] == ["is_possible", "has_all", "is_intact"]
    assert [each.__name__ for each in functions(SwitchMachine, "effect")] == ["flip"]


def test_unreachable_states_are_found_even_when_they_lead_to_each_other() -> None:
    assert unreachable_states(MapMachine) == (Map.ISLAND, Map.REEF)
    assert unreachable_states(DownloadMachine) == ()


def test_dead_states_are_those_that_only_lead_to_themselves_undeclared() -> None:
    assert dead_states(MapMachine) == (Map.TRAP,)
    assert dead_states(DownloadMachine) == ()


def test_passing_states_have_a_completion_row_without_a_guard() -> None:
    assert passing_states(MapMachine) == (Map.ROAD,)
    assert passing_states(DownloadMachine) == (State.CHECKING,)


def sets_attribute(context: Context, event: Begin) -> bool:
    context.n_wanted = 1
    return True


def sets_item(context: Context, event: Begin) -> bool:
    context.log[0] = "x"
    return True


def deletes_attribute(context: Context, event: Begin) -> bool:
    del context.error
    return True


def counts_calls() -> Any:
    n_calls = 0

    def counts(context: Context, event: Begin) -> bool:
        nonlocal n_calls
        n_calls += 1
        return True

    return counts


def keeps_locals_only(context: Context, event: Begin) -> bool:
    n_wanted = context.n_wanted
    n_wanted += 1
    return any(len(chunk) == n_wanted for chunk in context.chunks)


def guarded_by(guard: Any) -> type[Machine[State, Context]]:
    return type(
        "GuardedMachine",
        (Machine,),
        {"INITIAL": State.IDLE, "TABLE": (Row(State.IDLE, Begin, guard, None, State.DONE),)},
    )


def test_guards_that_assign_are_impure() -> None:
    for guard in (sets_attribute, sets_item, deletes_attribute, counts_calls()):
        assert impure_guards(guarded_by(guard)) == (guard.__name__,)


def test_guards_that_only_look_are_pure() -> None:
    for guard in (keeps_locals_only, is_possible, has_all, isinstance):
        assert impure_guards(guarded_by(guard)) == ()
