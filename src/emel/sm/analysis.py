"""What a table says about its machine: reachability, states without a way out, its events, guards that are not pure.

The faults that class definition refuses are in `emel.sm.table`; these are of the whole, and the tests ask them of every
machine.
"""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING, Any

from emel.sm.row import name_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum
    from types import CodeType

    from emel.sm.machine import BaseMachine

    MachineClass = type[BaseMachine[Any, Any]]

_STORES = frozenset(
    {"STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "DELETE_ATTR", "DELETE_SUBSCR", "DELETE_GLOBAL"}
)
# These also store the cells of a function's own variables, which is no one else's business.
_CELL_STORES = frozenset({"STORE_DEREF", "DELETE_DEREF"})


def event_classes(machine: MachineClass) -> tuple[type, ...]:
    """The event classes of the table, each once, in the order of their first row."""
    return tuple(dict.fromkeys(row.event for row in machine.TABLE if row.event is not None))


def functions(machine: MachineClass, role: str) -> tuple[Callable[..., Any], ...]:
    """The functions of the table in a role ("guard" or "effect"), each once, in the order of their first row."""
    return tuple(dict.fromkeys(getattr(row, role) for row in machine.TABLE if getattr(row, role) is not None))


def unreachable_states(machine: MachineClass) -> tuple[Enum, ...]:
    """The states that no sequence of rows leads to from INITIAL, in the order of the Enum."""
    reached = {machine.INITIAL}
    frontier = [machine.INITIAL]
    while frontier:
        state = frontier.pop()
        for row in machine.TABLE:
            if row.source is state and row.destination not in reached:
                reached.add(row.destination)
                frontier.append(row.destination)
    return tuple(state for state in machine.STATES if state not in reached)


def dead_states(machine: MachineClass) -> tuple[Enum, ...]:
    """The states that no row leaves for another state and that are not declared TERMINAL, in the order of the Enum."""
    left = {row.source for row in machine.TABLE if row.destination is not row.source}
    return tuple(state for state in machine.STATES if state not in left and state not in machine.TERMINAL)


def passing_states(machine: MachineClass) -> tuple[Enum, ...]:
    """The states a run never comes to rest in, as a completion row without a guard always leads on."""
    passed = {row.source for row in machine.TABLE if row.event is None and row.guard is None}
    return tuple(state for state in machine.STATES if state in passed)


def impure_guards(machine: MachineClass) -> tuple[str, ...]:
    """The names of guards whose code assigns or deletes an attribute, an item or an outer variable.

    A guard may still call something that changes its arguments; this finds what the guard does itself.
    """
    return tuple(
        name_of(guard)
        for guard in functions(machine, "guard")
        if (code := getattr(guard, "__code__", None)) is not None and _stores(code)
    )


def _stores(code: CodeType) -> bool:
    return any(
        instruction.opname in _STORES or (instruction.opname in _CELL_STORES and instruction.argval in code.co_freevars)
        for instruction in dis.get_instructions(code)
    )
