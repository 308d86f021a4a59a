"""The external-completion policy: other threads say that something is there, the dispatching thread acts on it.

A source is idle, armed, or fired. A producer thread only ever fires an armed source; it never touches a machine. The
outermost dispatch
1. forgets what an aborted one still required,
2. delivers `SourceFired` for every source that has fired, in ascending order, to the machine that armed it,
3. runs its own event, whose effects may arm sources and require some,
4. parks until the lowest required source has fired and delivers it, until none is required.
So nothing proceeds on a foreign thread, and what is required is delivered in an order that does not depend on that of
the producers. A dispatch from within an effect just runs; what it requires, the outermost one waits for. Meanwhile a
dispatch from another thread is rejected.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass
from emel.sm.errors import FramesExhausted, MachineError, SourceNeverFired
from emel.sm.policies import Runnable, SchedulerPolicy, answer_inline, drive
from emel.sm.task import ACCEPTED, REJECTED, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SOURCES = 64


@dataclass(frozen=True, slots=True)
class SourceFired:
    """A source armed by this machine has fired; it is idle again."""

    source_index: int


class ExternalCompletionPolicy(SchedulerPolicy):
    """See the file's header. Sources are numbered from 0; IndexError for a number that is none."""

    __slots__ = ("_armed", "_busy", "_changed", "_closed", "_fired", "_owner", "_receivers", "_required", "_running")

    def __init__(self, n_sources: int = MAX_SOURCES) -> None:
        if not 1 <= n_sources <= MAX_SOURCES:
            raise ValueError(f"{n_sources} sources were asked for: 1 to {MAX_SOURCES} are allowed")
        # Sets of sources, a bit each. `_armed` and `_fired` are written under `_changed`, by any thread.
        self._armed = self._fired = self._required = 0
        self._changed = threading.Condition()
        self._receivers: list[Runnable | None] = [None] * n_sources
        self._closed = False
        self._busy = threading.Lock()
        self._owner: int | None = None  # the dispatching thread
        self._running: Runnable | None = None  # the innermost machine it runs

    def arm(self, source_index: int, receiver: Runnable | None = None) -> None:
        """Makes a source ready to be fired, for the machine whose effect calls this, or for `receiver`.

        MachineError when the source is armed or has fired already, when there is no receiver, or after `close`.
        """
        bit = self._bit(source_index)
        if receiver is None and self._owner == threading.get_ident():
            receiver = self._running
        if receiver is None:
            raise MachineError(f"source {source_index} was armed outside of a dispatch: say for which machine")
        with self._changed:
            if self._closed:
                raise MachineError(f"source {source_index} cannot be armed: its policy is closed")
            if (self._armed | self._fired) & bit:
                state = "armed" if self._armed & bit else "fired and not delivered"
                raise MachineError(f"source {source_index} is {state}: a source is for one completion at a time")
            self._armed |= bit
            self._receivers[source_index] = receiver

    def disarm(self, source_index: int) -> None:
        """Gives a source up: it is idle, whatever it was. A dispatch that requires it raises SourceNeverFired."""
        bit = self._bit(source_index)
        with self._changed:
            self._armed &= ~bit
            self._fired &= ~bit
            self._receivers[source_index] = None
            self._changed.notify_all()

    def fire(self, source_index: int) -> bool:
        """Marks an armed source fired, from any thread; False when it is not armed (it has fired, or was given up)."""
        bit = self._bit(source_index)
        with self._changed:
            if self._closed or not self._armed & bit:
                return False
            self._armed &= ~bit
            self._fired |= bit
            self._changed.notify_all()
            return True

    def require(self, source_index: int) -> None:
        """Has the outermost dispatch wait for a source before it returns; only its effects call this.

        MachineError outside of a dispatch, SourceNeverFired for a source that is idle.
        """
        bit = self._bit(source_index)
        if self._owner != threading.get_ident():
            raise MachineError(f"source {source_index} was required outside of a dispatch: nothing would wait for it")
        if not (self._armed | self._fired) & bit:
            raise SourceNeverFired(f"source {source_index} is required but not armed: nothing would ever fire it")
        self._required |= bit

    def close(self) -> None:
        """Refuses everything from now on; call it when every producer has ended.

        A dispatch that is parked raises SourceNeverFired. So does this when a source is still armed, which nobody will
        fire: `disarm` what is given up on purpose.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            left = self._armed
            self._changed.notify_all()
        if left:
            raise SourceNeverFired(
                f"the policy was closed while {_named(left)} armed: fire or disarm every source before"
            )

    def start(self, machine: Runnable, event: object) -> Task:
        """Runs `event` and everything it requires; REJECTED while another thread dispatches, or after `close`."""
        try:
            return ACCEPTED if self.run(machine, event) else REJECTED
        except Exception as error:
            return Task.failed(error)

    def run(self, machine: Runnable, event: object) -> bool:
        """The same; True when the event and every completion it waited for were accepted, without an error."""
        if self._owner == threading.get_ident():
            return self._run_plainly(machine, event)
        if self._closed or not self._busy.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        try:
            self._required = 0
            if not self._sweep():
                return False
            is_accepted = self._run_plainly(machine, event)
            while self._required:
                is_accepted &= self._deliver(*self._await_lowest())
            return is_accepted
        finally:
            self._owner = None
            self._busy.release()

    def _run_plainly(self, machine: Runnable, event: object) -> bool:
        outer, self._running = self._running, machine
        try:
            return drive(machine.run(event), answer_inline)
        finally:
            self._running = outer

    def _sweep(self) -> bool:
        """Delivers what has fired by now; False when a receiver has no frame, which leaves its source fired."""
        for index in _indices(self._fired):
            with self._changed:
                receiver = self._receivers[index]
                if receiver is not None and not receiver.has_frame:
                    return False
                receiver = self._take(index)
            if receiver is not None:
                self._deliver(index, receiver)
        return True

    def _await_lowest(self) -> tuple[int, Runnable]:
        """Parks until the lowest required source has fired; the source and its receiver."""
        index = next(_indices(self._required))
        with self._changed:
            receiver = self._receivers[index]
            if receiver is not None and not receiver.has_frame:
                raise FramesExhausted(f"source {index} is required, but no frame is free for its completion")
            while (receiver := self._take(index)) is None:
                if self._closed or not self._armed >> index & 1:
                    reason = "the policy was closed" if self._closed else "it was disarmed"
                    raise SourceNeverFired(f"source {index} is required and can never fire: {reason}")
                self._changed.wait()
        self._required &= ~(1 << index)
        return index, receiver

    def _take(self, index: int) -> Runnable | None:
        """Makes a fired source idle and gives its receiver; None when it has not fired."""
        if not self._fired >> index & 1:
            return None
        self._fired &= ~(1 << index)
        receiver, self._receivers[index] = self._receivers[index], None
        return receiver

    def _deliver(self, index: int, receiver: Runnable) -> bool:
        return self._run_plainly(receiver, SourceFired(index))

    def _bit(self, source_index: int) -> int:
        if not 0 <= source_index < len(self._receivers):
            raise IndexError(f"there is no source {source_index}: sources are 0 to {len(self._receivers) - 1}")
        return 1 << source_index


def _indices(sources: int) -> Iterator[int]:
    """The sources of a set, ascending."""
    while sources:
        lowest = sources & -sources
        yield lowest.bit_length() - 1
        sources ^= lowest


def _named(sources: int) -> str:
    names = ", ".join(map(str, _indices(sources)))
    return f"source {names} is" if sources.bit_count() == 1 else f"sources {names} are"
