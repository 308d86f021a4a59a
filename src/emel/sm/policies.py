"""Scheduler policies: how the runs of coroutine machines are driven.

A policy is told of an event for a machine. It asks the machine for the run of that event, a generator, and drives it:
`send(None)` starts it, each value it yields is a trap, `send(answer)` or `throw(error)` resumes it, and StopIteration
carries its result. Everything a machine does is in its runs; a policy decides only when and where they proceed. The
inline policy is the first; a bounded fifo, a thread pool and external completion have the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

from emel.sm.errors import RefusedTrap
from emel.sm.task import ACCEPTED, REJECTED, Task
from emel.sm.traps import Checkpoint, RunLanes, Trap

Run: TypeAlias = Generator[Trap, Any, bool]


class Runnable(Protocol):
    """What a policy sees of a coroutine machine."""

    @property
    def is_running(self) -> bool:
        """Whether a run is under way; another one would raise ReentrantDispatch."""

    def run(self, event: object) -> Run:
        """The whole run of `event`, not started."""


class SchedulerPolicy(Protocol):
    """What a coroutine machine asks of its scheduler."""

    def start(self, machine: Runnable, event: object) -> Task:
        """Takes the run of `event` on and returns its task, complete or not; a policy that is busy gives REJECTED.

        An Exception of the run belongs into the task; anything else (KeyboardInterrupt) propagates.
        """


class InlinePolicy:
    """Drives a run on the caller's stack to its end: the task is complete when `start` returns. Stateless."""

    __slots__ = ()

    def start(self, machine: Runnable, event: object) -> Task:
        """Runs `event` to completion and returns a complete task."""
        return self.drive(machine.run(event))

    def drive(self, run: Run) -> Task:
        """Drives `run` to its end and returns a complete task."""
        try:
            trap = next(run)
            while True:
                trap = self._resume(run, trap)
        except StopIteration as stop:
            return ACCEPTED if stop.value else REJECTED
        except Exception as error:
            return Task.failed(error)

    def _resume(self, run: Run, trap: object) -> Trap:
        """Answers one trap and returns the next one."""
        try:
            answer = answer_inline(trap)
        except Exception as error:
            return run.throw(error)
        return run.send(answer)


def answer_inline(trap: object) -> object:
    """The answer to a trap on the caller's stack; raises what is to be thrown into the effect."""
    if isinstance(trap, Checkpoint):
        return None
    if isinstance(trap, RunLanes):
        return run_in_order(trap.calls)
    if isinstance(trap, Trap):
        raise RefusedTrap(f"the inline policy cannot answer {type(trap).__name__}: it never waits for anything outside")
    raise RefusedTrap(f"an effect yielded {trap!r}: effects yield only the traps of emel.sm.traps")


def run_in_order(calls: Sequence[Callable[[], object]]) -> list[object]:
    """Calls each, also after one raised; then raises the first exception or returns the results in order."""
    results: list[object] = []
    first_error: Exception | None = None
    for call in calls:
        try:
            results.append(call())
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return results


INLINE = InlinePolicy()
