"""What a machine raises: a faulty table at class definition, an illegal event or a runaway run at dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enum import Enum


class MachineError(Exception):
    """Base of every error of a machine itself; an exception of an effect propagates as it is.

    The errors of a dispatch keep their parts as arguments, so that they can be pickled; their text is made when read.
    """


class TableError(MachineError, TypeError):
    """A transition table that cannot be right; raised when its class is defined, naming the row."""


class UnexpectedEvent(MachineError):
    """No row accepts this event in this state. Nothing changed: neither the state nor the context.

    `machine` is the class name, `accepted` the events with a row in this state, `guards` the guards of the rows of
    this very event, none of which held (empty when the event has no row here at all).
    """

    def __init__(
        self, machine: str, state: Enum, event: object, accepted: tuple[type, ...], guards: tuple[str, ...] = ()
    ) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.accepted = accepted
        self.guards = guards
        super().__init__(machine, state, event, accepted, guards)

    def __str__(self) -> str:
        name = type(self.event).__name__
        reason = f"none of its guards holds ({', '.join(self.guards)})" if self.guards else "no row accepts it"
        names = ", ".join(each.__name__ for each in self.accepted) or "nothing"
        return f"{self.machine} in {self.state.name} got unexpected {name}: {reason}; accepted here: {names}"


class ReentrantDispatch(MachineError):
    """A machine got an event while it was still running one: it dispatched to itself, or has a second writer."""

    def __init__(self, machine: str, state: Enum, event: object) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        super().__init__(machine, state, event)

    def __str__(self) -> str:
        return (
            f"{self.machine} in {self.state.name} got {type(self.event).__name__} while it was running "
            "another event: no machine dispatches to itself, and each has one writer; return first, then dispatch"
        )


class CompletionOverflow(MachineError):
    """A run took more completion transitions than its class allows (`MAX_COMPLETIONS`); it stopped in `state`."""

    def __init__(self, machine: str, state: Enum, event: object, limit: int) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.limit = limit
        super().__init__(machine, state, event, limit)

    def __str__(self) -> str:
        return (
            f"{self.machine} did not come to rest after {type(self.event).__name__}: still enabled in "
            f"{self.state.name} after {self.limit} completion transitions; make a guard end the cycle, "
            "or raise MAX_COMPLETIONS"
        )


class UnfinishedTask(MachineError):
    """The result of a task was read, or the task dropped, before its run came to rest."""


class FramesExhausted(MachineError):
    """In the middle of a dispatch no frame was free: for an effect not declared to wait, or for a completion."""


class SourceNeverFired(MachineError):
    """A dispatch needs a source of external completion that nothing can fire any more."""


class RefusedTrap(MachineError):
    """A waiting effect yielded something its scheduler policy cannot answer; thrown into that effect."""
