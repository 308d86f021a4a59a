"""The machine core: transition tables, run-to-completion dispatch, coroutine machines, tracing, diagrams.

The standard library and `emel.lazy_dataclasses` only. `docs/concepts/machines.md` is the introduction. Tracing is in
`emel.sm.trace`, traps in `emel.sm.traps`; scheduler policies are in `emel.sm.policies` (inline), `fifo`, `thread_pool`
and `external`.
"""

from emel.sm.comachine import CoMachine
from emel.sm.errors import (
    CompletionOverflow,
    FramesExhausted,
    MachineError,
    ReentrantDispatch,
    RefusedTrap,
    SourceNeverFired,
    TableError,
    UnexpectedEvent,
    UnfinishedTask,
)
from emel.sm.frames import FramePool
from emel.sm.machine import BaseMachine, Machine
from emel.sm.row import Row
from emel.sm.task import Task

__all__ = [
    "BaseMachine",
    "CoMachine",
    "CompletionOverflow",
    "FramePool",
    "FramesExhausted",
    "Machine",
    "MachineError",
    "ReentrantDispatch",
    "RefusedTrap",
    "Row",
    "SourceNeverFired",
    "TableError",
    "Task",
    "UnexpectedEvent",
    "UnfinishedTask",
]
