"""What a scheduler policy is, and the inline one.

A policy is told of an event for a machine. It asks the machine for the run of that event, a generator, and drives it:
`send(None)` starts it, each value it yields is a trap, `send(answer)` or `throw(error)` resumes it, and StopIteration
carries its result. Everything a machine does is in its runs; a policy decides only when and where they proceed. The
other policies: `emel.sm.fifo`, `emel.sm.thread_pool`, `emel.sm.external`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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

    @property
    def has_frame(self) -> bool:
        """Whether a run could have a frame now; without one it is rejected."""

    def run(self, event: object) -> Run:
        """The whole run of `event`, not started."""


class SchedulerPolicy(ABC):
    """What a coroutine machine asks of its scheduler."""

    __slots__ = ()

    @abstractmethod
    def start(self, machine: Runnable, event: object) -> Task:
        """Takes the run of `event` on and returns its task, complete or not; a policy that is busy gives REJECTED.

        An Exception of the run belongs into the task; anything else (KeyboardInterrupt) propagates.
        """

    def run(self, machine: Runnable, event: object) -> bool:
        """Has `event` run and waits for its result, which is that of the task `start` would give."""
        return self.start(machine, event).result()


class InlinePolicy(SchedulerPolicy):
    """Drives a run on the caller's stack to its end: the task is complete when `start` returns. Stateless."""

    __slots__ = ()

    def start(self, machine: Runnable, event: object) -> Task:
        """Runs `event` to completion and returns a complete task."""
        return completed(machine.run(event), answer_inline)

    def run(self, machine: Runnable, event: object) -> bool:
        """Runs `event` to completion."""
        return drive(machine.run(event), answer_inline)


def drive(run: Run, answer: Callable[[object], object]) -> bool:
    """Drives a run to its end on the caller's stack; returns its result, raises what it raised."""
    try:
        trap = next(run)
        while True:
            try:
                reply = answer(trap)
            except Exception as error:
                trap = run.throw(error)
            else:
                trap = run.send(reply)
    except StopIteration as stop:
        return bool(stop.value)


def completed(run: Run, answer: Callable[[object], object]) -> Task:
    """Drives a run to its end on the caller's stack; returns its task, complete."""
    try:
        return ACCEPTED if drive(run, answer) else REJECTED
    except Exception as error:
        return Task.failed(error)


def run_label(machine: Runnable, event: object) -> str:
    """What a run goes by in messages."""
    return f"{type(machine).__name__}'s {type(event).__name__}"


def answer_inline(trap: object) -> object:
    """The answer to a trap on the caller's stack; raises what is to be thrown into the effect."""
    if isinstance(trap, Checkpoint):
        return None
    if isinstance(trap, RunLanes):
        return run_in_order(trap.calls)
    raise refusal(trap, "a policy that runs on the caller's stack")


def refusal(trap: object, policy: str) -> RefusedTrap:
    """The error for something yielded that `policy`, in words, has no answer to."""
    if isinstance(trap, Trap):
        return RefusedTrap(f"{policy} cannot answer {type(trap).__name__}: the machine needs another policy")
    return RefusedTrap(f"an effect yielded {trap!r}: effects yield only the traps of emel.sm.traps")


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
