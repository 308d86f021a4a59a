"""Random tables: plain and coroutine machines, traced or not, do what a slow reading of the rows does.

Invariant: for any sound table and any events, every kind of machine passes through the same states and effects as
`interpret`, and an event that `interpret` refuses is refused and leaves the state as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emel.sm import CoMachine, CompletionOverflow, Machine, Row, TableError, UnexpectedEvent
from emel.sm.policies import InlinePolicy
from emel.sm.trace import trace
from emel.sm.traps import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class State(Enum):
    A = 0
    B = 1
    C = 2


@dataclass(frozen=True, slots=True)
class Red:
    n: int


@dataclass(frozen=True, slots=True)
class Blue:
    n: int


@dataclass(slots=True)
class Log:
    n_steps: int = 0
    effects: list[tuple[str, object]] = field(default_factory=list)


def is_even(context: Log, event: Any) -> bool:
    return bool(event.n % 2 == 0)


def is_early(context: Log, event: object) -> bool:
    return context.n_steps < 4


def is_third(context: Log, event: Any) -> bool:
    return bool((context.n_steps + event.n) % 3 == 0)


def first(context: Log, event: object) -> None:
    context.n_steps += 1
    context.effects.append(("first", event))


def second(context: Log, event: object) -> None:
    context.n_steps += 2
    context.effects.append(("second", event))


async def first_slowly(context: Log, event: object) -> None:
    await checkpoint()
    first(context, event)
    await checkpoint()


WAITING: dict[object, Any] = {first: first_slowly, second: second, None: None}
LIMIT = 6


def interpret(table: tuple[Row[Any, Any, Any], ...], state: State, context: Log, event: object) -> tuple[State, str]:
    """The state after `event`, and "done", "unexpected" or "overflow"."""
    kind: type | None = type(event)
    n_completions = 0
    while True:
        for row in table:
            if row.source is state and row.event is kind and (row.guard is None or row.guard(context, event)):
                break
        else:
            return state, "done" if kind is None else "unexpected"
        if kind is None:
            n_completions += 1
        if n_completions > LIMIT:
            return state, "overflow"
        if row.effect is not None:
            row.effect(context, event)
        state, kind = row.destination, None


def outcome_of(dispatch: Callable[[object], object], event: object) -> str:
    try:
        dispatch(event)
    except UnexpectedEvent:
        return "unexpected"
    except CompletionOverflow:
        return "overflow"
    return "done"


rows: st.SearchStrategy[Row[Any, Any, Any]] = st.builds(
    Row,
    st.sampled_from(State),
    st.sampled_from([Red, Blue, None]),
    st.sampled_from([is_even, is_early, is_third, None]),
    st.sampled_from([first, second, None]),
    st.sampled_from(State),
)
events = st.builds(lambda kind, n: kind(n), st.sampled_from([Red, Blue]), st.integers(0, 5))


def define(base: Any, table: tuple[Row[Any, Any, Any], ...]) -> Any:
    attributes = {"INITIAL": State.A, "TABLE": table, "MAX_COMPLETIONS": LIMIT}
    return type(f"Random{base.__name__}", (base,), attributes)


def sound_rows(candidates: list[Row[Any, Any, Any]]) -> tuple[Row[Any, Any, Any], ...]:
    """The candidates that the class definition accepts one after the other."""
    table: tuple[Row[Any, Any, Any], ...] = ()
    for row in candidates:
        try:
            define(Machine, (*table, row))
        except TableError:
            continue
        table += (row,)
    return table


@settings(max_examples=150, deadline=None)
@given(candidates=st.lists(rows, min_size=1, max_size=12), story=st.lists(events, max_size=12), is_traced=st.booleans())
def test_machines_do_what_a_slow_reading_of_the_rows_does(
    candidates: list[Row[Any, Any, Any]], story: list[object], is_traced: bool
) -> None:
    table = sound_rows(candidates)
    if not table:
        return
    waiting = tuple(Row(row.source, row.event, row.guard, WAITING[row.effect], row.destination) for row in table)
    machines = [
        define(Machine, table)(Log()),
        define(CoMachine, table)(Log()),
        define(CoMachine, waiting)(Log()),
        define(CoMachine, waiting)(Log(), type("OtherInlinePolicy", (InlinePolicy,), {})()),
    ]
    state, context = State.A, Log()
    for event in story:
        state, outcome = interpret(table, state, context, event)
        for machine in machines:
            seen: list[object] = []
            if is_traced:
                with trace(seen.append, machine):
                    assert outcome_of(machine.dispatch, event) == outcome
                assert bool(seen) == (outcome != "unexpected")
            else:
                assert outcome_of(machine.dispatch, event) == outcome
            assert (machine.state, machine.context, machine.is_running) == (state, context, False)
