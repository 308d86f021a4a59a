"""Checks a transition table and compiles it to what dispatch reads: one node per state, linked by its rows.

Checked at class definition, each error naming the row: states of one Enum; events that are frozen slotted dataclasses;
guards and effects that are named functions; only effects of a coroutine machine may wait, guards never; no duplicated
row, no row shadowed by an unguarded one; no row out of a terminal state; no completion cycle that nothing can leave.
"""

from __future__ import annotations

from enum import Enum
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from typing import TYPE_CHECKING, Any, TypeAlias

from emel.sm.errors import TableError
from emel.sm.row import AnyRow, Row, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Step: TypeAlias = tuple[Callable[[Any, Any], bool] | None, Callable[[Any, Any], Any] | None, "Node"]
    Steps: TypeAlias = tuple[Step, ...]

_WAITING = CO_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE


class Node:
    """A state as dispatch sees it.

    `accepts` maps an event class to its steps in row order, `completions` are the steps of the completion rows, `rows`
    the rows as written. `failed`: a run that comes to rest here had an error.
    """

    __slots__ = ("accepts", "completions", "failed", "rows", "state")

    def __init__(self, state: Enum, *, failed: bool = False) -> None:
        self.state = state
        self.failed = failed
        self.rows: tuple[AnyRow[Any, Any], ...] = ()
        self.accepts: dict[type, Steps] = {}
        self.completions: Steps = ()

    def link(
        self, rows: Iterable[AnyRow[Any, Any]], nodes: dict[Enum, Node], effect_of: Callable[[AnyRow[Any, Any]], Any]
    ) -> None:
        """Sets the steps from `rows`, in place where a machine may hold them, with the effects `effect_of` gives."""
        self.rows = tuple(rows)
        steps: dict[type | None, list[Step]] = {}
        for row in self.rows:
            steps.setdefault(row.event, []).append((row.guard, effect_of(row), nodes[row.destination]))
        self.completions = tuple(steps.pop(None, ()))
        self.accepts.update({event: tuple(each) for event, each in steps.items() if event is not None})


def plain_effect(row: AnyRow[Any, Any]) -> Callable[[Any, Any], Any] | None:
    """The effect of a row as it stands in the table."""
    return row.effect


def link_nodes(
    states: Iterable[Enum],
    table: tuple[AnyRow[Any, Any], ...],
    failed: frozenset[Any],
    effect_of: Callable[[AnyRow[Any, Any]], Any] = plain_effect,
) -> dict[Enum, Node]:
    """One node for each state, linked by the rows of `table`."""
    nodes = {state: Node(state, failed=state in failed) for state in states}
    for state, node in nodes.items():
        node.link((row for row in table if row.source is state), nodes, effect_of)
    return nodes


def relink(nodes: dict[Enum, Node], effect_of: Callable[[AnyRow[Any, Any]], Any]) -> None:
    """Gives every step the effect `effect_of` gives for its row, in place: machines that hold a node see it too."""
    for node in nodes.values():
        node.link(node.rows, nodes, effect_of)


def waits(function: object) -> bool:
    """Whether calling `function` gives a generator or a coroutine instead of doing its work."""
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & _WAITING)


def check_table(machine: type, *, may_wait: bool) -> type[Enum]:
    """Returns the state Enum of a sound table; raises TableError naming the first faulty row otherwise."""
    name = machine.__name__
    initial = getattr(machine, "INITIAL", None)
    table = getattr(machine, "TABLE", None)
    if not isinstance(initial, Enum):
        raise TableError(f"{name}.INITIAL is {initial!r}: it must be a member of the machine's state Enum")
    if not isinstance(table, tuple) or not table:
        raise TableError(f"{name}.TABLE is {table!r}: it must be a tuple of Row, not empty")
    states = type(initial)
    for role in ("TERMINAL", "FAILED"):
        members = getattr(machine, role)
        if not isinstance(members, frozenset) or not all(isinstance(each, states) for each in members):
            raise TableError(f"{name}.{role} is {members!r}: it must be a frozenset of members of {states.__name__}")
    for index, row in enumerate(table):
        if not isinstance(row, Row):
            raise TableError(f"{name}.TABLE[{index}] is {row!r}: it must be a Row")
        for fault in _row_faults(row, states, machine.TERMINAL, may_wait=may_wait):  # type: ignore[attr-defined]
            raise TableError(f"{name}.TABLE[{index}] ({row}): {fault}")
    _check_order(name, table)
    _check_completions_can_end(name, table)
    return states


def _row_faults(
    row: AnyRow[Any, Any], states: type[Enum], terminal: frozenset[Any], *, may_wait: bool
) -> Iterable[str]:
    for role in ("source", "destination"):
        state = getattr(row, role)
        if not isinstance(state, states):
            yield f"unknown {role} state {state!r}: it must be a member of {states.__name__}, as INITIAL is"
    if row.source in terminal:
        yield f"{row.source.name} is declared TERMINAL, so no row may leave it"
    if row.event is not None and not _is_event_class(row.event):
        yield f"event {row.event!r} is no event class: use None or a @dataclass(frozen=True, slots=True)"
    for role in ("guard", "effect"):
        function = getattr(row, role)
        if function is None:
            continue
        name = getattr(function, "__name__", None)
        if not callable(function) or not isinstance(name, str) or not name.isidentifier():
            yield f"{role} {function!r} has no name: it must be a named function, so that tables and traces can show it"
    if row.guard is not None and waits(row.guard):
        yield f"guard {row.guard.__name__} is a generator or coroutine: guards are pure and never wait"
    if getattr(getattr(row.effect, "__code__", None), "co_flags", 0) & CO_ASYNC_GENERATOR:
        yield f"effect {name_of(row.effect)} is an asynchronous generator: await the traps instead of yielding"
    if row.effect is not None and waits(row.effect) and not may_wait:
        yield f"effect {name_of(row.effect)} is a generator or coroutine: only effects of a CoMachine may wait"


def _is_event_class(event: object) -> bool:
    parameters = getattr(event, "__dataclass_params__", None)
    return isinstance(event, type) and parameters is not None and parameters.frozen and "__slots__" in vars(event)


def _check_order(machine: str, table: tuple[AnyRow[Any, Any], ...]) -> None:
    unguarded: dict[tuple[Enum, type | None], int] = {}
    guarded: dict[tuple[Enum, type | None, object], int] = {}
    for index, row in enumerate(table):
        fault = f"{machine}.TABLE[{index}] ({row}) can never fire: "
        shadow = unguarded.get((row.source, row.event))
        if shadow is not None:
            raise TableError(f"{fault}TABLE[{shadow}] ({table[shadow]}) comes first and has no guard")
        twin = guarded.setdefault((row.source, row.event, row.guard), index)
        if twin != index:
            raise TableError(f"{fault}TABLE[{twin}] ({table[twin]}) comes first with the same guard")
        if row.guard is None:
            unguarded[row.source, row.event] = index


def _check_completions_can_end(machine: str, table: tuple[AnyRow[Any, Any], ...]) -> None:
    """Finds states a run could never come to rest from: always enabled, and every completion stays among them."""
    completions: dict[Enum, list[AnyRow[Any, Any]]] = {}
    for row in table:
        if row.event is None:
            completions.setdefault(row.source, []).append(row)
    endless = {state for state, rows in completions.items() if rows[-1].guard is None}
    while leaving := {state for state in endless if any(row.destination not in endless for row in completions[state])}:
        endless -= leaving
    for index, row in enumerate(table):
        if row.event is None and row.source in endless:
            names = ", ".join(state.name for state in type(row.source) if state in endless)
            raise TableError(
                f"{machine}.TABLE[{index}] ({row}): the completion rows of {names} form a cycle that no guard can end"
            )


def accepted_events(node: Node) -> tuple[type, ...]:
    """The event classes that have a row in this state, in table order."""
    return tuple(node.accepts)


def guard_names(steps: Steps) -> tuple[str, ...]:
    """The names of the guards of these rows, in order."""
    return tuple(name_of(guard) for guard, _, _ in steps)
