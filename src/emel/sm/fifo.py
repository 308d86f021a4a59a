"""The fifo policy: one thread, strict order, everything complete on return.

1. A dispatch while the policy is idle runs at once; one while it is busy is rejected and its machine stays untouched.
   Nothing is queued that was not asked for.
2. `schedule` asks for it: during a dispatch it makes a machine ready, to run after those before it, within the same
   outermost dispatch. It is rejected when `n_ready` machines are ready or running already.
3. A run that waits goes to the end of the queue. It may do so `n_steps` times; the next trap is refused, so that a run
   that never ends by itself is ended.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from emel.sm.errors import MachineError, RefusedTrap
from emel.sm.policies import Run, Runnable, SchedulerPolicy, answer_inline, completed, run_label
from emel.sm.task import REJECTED, Promise, Task

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_N_READY = 16
DEFAULT_N_STEPS = 64


class _Ready:
    """A run that can proceed, and how: what it is to be resumed by."""

    __slots__ = ("machine", "n_steps_left", "promise", "resume", "run")

    def __init__(self, machine: Runnable, event: object, n_steps: int) -> None:
        self.machine = machine
        self.run: Run = machine.run(event)
        self.promise = Promise(run_label(machine, event))
        self.n_steps_left = n_steps
        self.resume: Callable[[], object] = partial(next, self.run)


class FifoPolicy(SchedulerPolicy):
    """See the file's header."""

    __slots__ = ("_busy", "_current", "_n_ready", "_n_steps", "_owner", "_ready")

    def __init__(self, n_ready: int = DEFAULT_N_READY, n_steps: int = DEFAULT_N_STEPS) -> None:
        if n_ready < 1 or n_steps < 1:
            raise ValueError(f"a fifo of {n_ready} machines and {n_steps} steps could run nothing: at least 1 each")
        self._n_ready = n_ready
        self._n_steps = n_steps
        self._ready: deque[_Ready] = deque()
        self._busy = threading.Lock()
        self._owner: int | None = None  # the thread that drains
        self._current: Runnable | None = None  # whose run proceeds now

    def start(self, machine: Runnable, event: object) -> Task:
        """Runs `event` and all that is scheduled meanwhile to completion; REJECTED while busy, on any thread."""
        if not self._busy.acquire(blocking=False):
            if machine is self._current and self._owner == threading.get_ident():
                return completed(machine.run(event), answer_inline)  # a dispatch to itself: the machine refuses it
            return REJECTED
        self._owner = threading.get_ident()
        try:
            first = _Ready(machine, event, self._n_steps)
            self._ready.append(first)
            self._drain()
            return Task(first.promise)
        finally:
            self._owner = None
            self._busy.release()

    def try_run_immediate(self, machine: Runnable, event: object) -> bool:
        """Runs `event` to completion if the policy is idle; False when it is busy, or the run had an error."""
        return self.start(machine, event).result()

    def schedule(self, machine: Runnable, event: object) -> Task:
        """Has `event` run after everything that is ready; its task is complete when the outermost dispatch returns.

        REJECTED when the queue is full, or another thread is draining it. While the policy is idle it is `start`.
        """
        if self._owner is None:
            return self.start(machine, event)
        if self._owner != threading.get_ident() or len(self._ready) >= self._n_ready:
            return REJECTED
        ready = _Ready(machine, event, self._n_steps)
        self._ready.append(ready)
        return Task(ready.promise)

    def _drain(self) -> None:
        """Runs what is ready until nothing is."""
        try:
            while self._ready:
                ready = self._ready[0]
                self._current = ready.machine
                try:
                    trap = ready.resume()
                except StopIteration as stop:
                    ready.promise.finish(bool(stop.value))
                except Exception as error:
                    ready.promise.fail(error)
                else:
                    self._answer(ready, trap)
                    self._ready.append(ready)
                self._ready.popleft()
        finally:
            self._current = None
            while self._ready:  # only an interrupt leaves any
                self._give_up(self._ready.popleft())

    def _answer(self, ready: _Ready, trap: object) -> None:
        """Decides how the run that yielded `trap` is resumed."""
        if not ready.n_steps_left:
            ready.resume = partial(
                ready.run.throw,
                RefusedTrap(
                    f"{ready.promise.label} has waited {self._n_steps} times, which is all its fifo policy allows: "
                    "make n_steps larger, or end the run earlier"
                ),
            )
            return
        ready.n_steps_left -= 1
        try:
            ready.resume = partial(ready.run.send, answer_inline(trap))
        except Exception as error:
            ready.resume = partial(ready.run.throw, error)

    def _give_up(self, ready: _Ready) -> None:
        ready.run.close()
        ready.promise.fail(MachineError(f"{ready.promise.label} was given up: the fifo policy was interrupted"))
