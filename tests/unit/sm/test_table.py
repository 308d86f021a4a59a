from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from emel import sm
from emel.sm import CoMachine, Machine, TableError
from emel.sm.table import waits
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadMachine,
    State,
    has_all,
    is_intact,
    is_possible,
    start,
    start_slowly,
    store,
    store_in_lanes,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


Row: Any = sm.Row  # of most faults a type checker would tell, too


class OtherState(Enum):
    IDLE = "idle"


@dataclass(slots=True)
class Mutable:
    pass


@dataclass(frozen=True)
class Slotless:
    pass


def guard_that_waits(context: Context, event: object) -> Generator[bool, None, bool]:
    yield True
    return True


async def effect_that_yields(context: Context, event: object) -> AsyncGenerator[int, None]:
    yield 1


GOOD = Row(State.IDLE, Begin, is_possible, start, State.READING)
IS_POSSIBLE_TWICE = "comes first with the same guard"


def define(*rows: object, base: type[Any] = Machine, **attributes: object) -> type[Any]:
    return type("FaultyMachine", (base,), {"INITIAL": State.IDLE, "TABLE": rows, **attributes})


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (Row(OtherState.IDLE, Begin, None, None, State.IDLE), "unknown source state <OtherState.IDLE: 'idle'>"),
        (Row(State.IDLE, ChunkRead, None, None, "READING"), "unknown destination state 'READING': it must be a member"),
        (Row(State.IDLE, int, None, None, State.IDLE), "event <class 'int'> is no event class"),
        (Row(State.IDLE, "Begin", None, None, State.IDLE), "event 'Begin' is no event class"),
        (Row(State.IDLE, Begin(1), None, None, State.IDLE), r"event Begin\(n_chunks=1\) is no event class"),
        (Row(State.IDLE, Mutable, None, None, State.IDLE), "Mutable'> is no event class: use None or a @dataclass"),
        (Row(State.IDLE, Slotless, None, None, State.IDLE), r"use None or a @dataclass\(frozen=True, slots=True\)"),
        (Row(State.IDLE, ChunkRead, lambda c, e: True, None, State.IDLE), r"guard <function .*<lambda>.* has no name"),
        (Row(State.IDLE, ChunkRead, None, lambda c, e: None, State.IDLE), r"effect <function .*<lambda>.* has no name"),
        (Row(State.IDLE, ChunkRead, None, functools.partial(store), State.IDLE), r"effect functools.* has no name"),
        (Row(State.IDLE, ChunkRead, "has_all", None, State.IDLE), "guard 'has_all' has no name"),
        (Row(State.IDLE, ChunkRead, guard_that_waits, None, State.IDLE), "guard guard_that_waits is a generator"),
        (Row(State.IDLE, ChunkRead, None, start_slowly, State.IDLE), "only effects of a CoMachine may wait"),
        (Row(State.IDLE, ChunkRead, None, store_in_lanes, State.IDLE), "only effects of a CoMachine may wait"),
        (Row(State.IDLE, ChunkRead, None, effect_that_yields, State.IDLE), "is an asynchronous generator"),
        (Row(State.IDLE, Begin, is_possible, None, State.IDLE), IS_POSSIBLE_TWICE),
        (None, "is None: it must be a Row"),
    ],
)
def test_table_with_a_faulty_row_is_refused_naming_it(row: Any, fault: str) -> None:
    with pytest.raises(TableError, match=rf"^FaultyMachine\.TABLE\[1\] .*{fault}"):
        define(GOOD, row)


def test_table_error_shows_the_row_itself() -> None:
    with pytest.raises(TableError, match=r"TABLE\[0\] \(IDLE \+ int -> IDLE\): event"):
        define(Row(State.IDLE, int, None, None, State.IDLE))


def test_row_after_an_unguarded_one_is_refused_naming_both() -> None:
    with pytest.raises(TableError) as caught:
        define(
            Row(State.IDLE, Begin, None, None, State.READING),
            Row(State.READING, Begin, None, None, State.IDLE),
            Row(State.IDLE, Begin, is_possible, start, State.IDLE),
        )
    assert str(caught.value) == (
        "FaultyMachine.TABLE[2] (IDLE + Begin [is_possible] / start -> IDLE) can never fire: "
        "TABLE[0] (IDLE + Begin -> READING) comes first and has no guard"
    )


def test_completion_row_after_an_unguarded_one_is_refused() -> None:
    with pytest.raises(TableError, match=r"TABLE\[2\].*can never fire: TABLE\[1\].*comes first and has no guard"):
        define(
            GOOD,
            Row(State.READING, None, None, None, State.DONE),
            Row(State.READING, None, has_all, None, State.FAILED),
        )


@pytest.mark.parametrize("table", [(), [GOOD], None, GOOD])
def test_table_that_is_no_tuple_of_rows_is_refused(table: object) -> None:
    with pytest.raises(TableError, match=r"FaultyMachine\.TABLE is .*: it must be a tuple of Row, not empty"):
        define(TABLE=table)


@pytest.mark.parametrize("initial", ["IDLE", None, 1])
def test_initial_that_is_no_state_is_refused(initial: object) -> None:
    with pytest.raises(TableError, match=rf"FaultyMachine\.INITIAL is {initial!r}: it must be a member"):
        define(GOOD, INITIAL=initial)


def test_initial_without_table_is_refused() -> None:
    with pytest.raises(TableError, match=r"HalfMachine\.TABLE is None"):
        type("HalfMachine", (Machine,), {"INITIAL": State.IDLE})


@pytest.mark.parametrize("role", ["TERMINAL", "FAILED"])
@pytest.mark.parametrize("members", [frozenset({"DONE"}), frozenset({OtherState.IDLE}), {State.DONE}, State.DONE])
def test_terminal_or_failed_that_is_no_set_of_states_is_refused(role: str, members: object) -> None:
    with pytest.raises(TableError, match=rf"FaultyMachine\.{role} is .*: it must be a frozenset of members of State"):
        define(GOOD, base=Machine, **{role: members})


def test_row_out_of_a_terminal_state_is_refused() -> None:
    with pytest.raises(TableError, match=r"IDLE is declared TERMINAL, so no row may leave it"):
        define(GOOD, TERMINAL=frozenset({State.IDLE}))


def test_terminal_of_a_subclass_is_checked_against_the_inherited_table() -> None:
    with pytest.raises(TableError, match=r"NarrowMachine\.TABLE\[1\].*READING is declared TERMINAL"):
        type("NarrowMachine", (DownloadMachine,), {"TERMINAL": frozenset({State.READING})})


def test_subclass_that_changes_nothing_of_the_table_shares_it() -> None:
    same: type[Any] = type("SameMachine", (DownloadMachine,), {})
    assert same.NODES is DownloadMachine.NODES


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([(State.IDLE, None, State.IDLE)], "IDLE"),
        ([(State.IDLE, None, State.READING), (State.READING, None, State.IDLE)], "IDLE, READING"),
        (
            [
                (State.IDLE, has_all, State.READING),
                (State.IDLE, None, State.IDLE),
                (State.READING, is_intact, State.READING),
                (State.READING, None, State.IDLE),
            ],
            "IDLE, READING",
        ),
        ([(State.DONE, None, State.IDLE), (State.IDLE, None, State.IDLE)], "IDLE, DONE"),
    ],
)
def test_completion_cycle_that_nothing_ends_is_refused(rows: list[tuple[Any, Any, Any]], names: str) -> None:
    table = [Row(source, None, guard, None, destination) for source, guard, destination in rows]
    with pytest.raises(TableError, match=rf"the completion rows of {names} form a cycle that no guard can end"):
        define(GOOD, *table)


@pytest.mark.parametrize(
    "rows",
    [
        [(State.IDLE, has_all, State.IDLE)],
        [(State.IDLE, None, State.READING), (State.READING, has_all, State.IDLE)],
        [(State.IDLE, has_all, State.DONE), (State.IDLE, None, State.READING), (State.READING, None, State.IDLE)],
    ],
)
def test_completion_cycle_that_a_guard_can_end_is_accepted(rows: list[tuple[Any, Any, Any]]) -> None:
    table = [Row(source, None, guard, None, destination) for source, guard, destination in rows]
    assert define(GOOD, *table).STATES is State


def test_coroutine_machine_accepts_effects_that_wait() -> None:
    machine = define(GOOD, Row(State.IDLE, Begin, None, start_slowly, State.IDLE), base=CoMachine)
    assert machine.STATES is State


def test_waits_tells_generators_and_coroutines_from_plain_callables() -> None:
    assert waits(start_slowly)
    assert waits(store_in_lanes)
    assert not waits(start)
    assert not waits(len)
