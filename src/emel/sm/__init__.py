"""The machine core: transition tables, run-to-completion dispatch, coroutine machines, tracing, diagrams.

Standard library only. `docs/concepts/machines.md` is the introduction.
"""

from emel.sm.errors import CompletionOverflow, MachineError, ReentrantDispatch, TableError, UnexpectedEvent
from emel.sm.machine import Machine
from emel.sm.row import Row

__all__ = [
    "CompletionOverflow",
    "Machine",
    "MachineError",
    "ReentrantDispatch",
    "Row",
    "TableError",
    "UnexpectedEvent",
]
