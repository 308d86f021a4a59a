"""The machine core: transition tables, run-to-completion dispatch, coroutine machines, tracing, diagrams.

Standard library only. `docs/concepts/machines.md` is the introduction. Tracing is in `emel.sm.trace`, traps in
`emel.sm.traps`, scheduler policies in `emel.sm.policies`.
"""

from emel.sm.comachine import CoMachine
from emel.sm.errors import (
    CompletionOverflow,
    MachineError,
    ReentrantDispatch,
    RefusedTrap,
    TableError,
    UnexpectedEvent,
    UnfinishedTask,
)
from emel.sm.machine import BaseMachine, Machine
from emel.sm.row import Row
from emel.sm.task import Task

__all__ = [
    "BaseMachine",
    "CoMachine",
    "CompletionOverflow",
    "Machine",
    "MachineError",
    "ReentrantDispatch",
    "RefusedTrap",
    "Row",
    "TableError",
    "Task",
    "UnexpectedEvent",
    "UnfinishedTask",
]
