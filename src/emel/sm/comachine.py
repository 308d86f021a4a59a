"""Coroutine machines: like `Machine`, with effects that may wait.

The run of one event is a generator, written once, that scheduler policies drive. Between two waits it takes steps
without suspending, so an inline run makes no generator before an effect waits, and costs what a plain machine costs.
While an effect waits the machine is still running: another dispatch to it is refused.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, ClassVar

from emel.sm.machine import RUNNING, BaseMachine
from emel.sm.policies import INLINE, SchedulerPolicy
from emel.sm.row import C, S
from emel.sm.task import ACCEPTED, REJECTED, Task

if TYPE_CHECKING:
    from collections.abc import Generator

    from emel.sm.table import Node, Steps
    from emel.sm.traps import Trap


class CoMachine(BaseMachine[S, C]):
    """A machine whose effects may be generators or coroutines that wait by the traps of `emel.sm.traps`.

    A run that comes to rest in a state of FAILED had an error: its result is False.
    """

    __slots__ = ("_pending", "_policy")

    EFFECTS_MAY_WAIT: ClassVar[bool] = True

    _policy: SchedulerPolicy
    _pending: tuple[Node, int]  # where the waiting effect leads, and how many completion steps are left then

    def __init__(self, context: C, policy: SchedulerPolicy = INLINE) -> None:
        super().__init__(context)
        self._policy = policy

    def dispatch(self, event: object) -> bool:
        """`dispatch_async(event).result()`: see `Task.result` for what it returns and raises."""
        if self._policy is not INLINE:
            return self._policy.start(self, event).result()
        waiting = self._begin(event)
        if waiting is None:
            return not self._node.failed
        return INLINE.drive(self._rest(event, waiting)).result()

    def dispatch_async(self, event: object) -> Task:
        """Hands the run of `event` to the scheduler policy; under the inline policy the task is complete on return."""
        if self._policy is not INLINE:
            return self._policy.start(self, event)
        try:
            waiting = self._begin(event)
        except Exception as error:
            return Task.failed(error)
        if waiting is None:
            return REJECTED if self._node.failed else ACCEPTED
        return INLINE.drive(self._rest(event, waiting))

    @types.coroutine
    def run(self, event: object) -> Generator[Trap, Any, bool]:
        """The scheduler core, the whole run of one event: yields the traps of its effects, returns its result."""
        return (yield from self._rest(event, self._begin(event)))

    @types.coroutine
    def _rest(self, event: object, waiting: Any) -> Generator[Trap, Any, bool]:
        """What is left of a run once an effect gave `waiting`."""
        while waiting is not None:
            node, n_left = self._pending
            try:
                yield from waiting
            except BaseException:
                self._accepts = self._node.accepts
                raise
            self._node = node
            waiting = self._advance(event, node.completions, n_left)
        return not self._node.failed

    def _begin(self, event: object) -> Any:
        """Starts the run of `event`; returns what its first waiting effect gave, None when the run is over."""
        steps = self._accepts.get(type(event))
        if steps is None:
            raise self._refusal(event)
        self._accepts = RUNNING
        return self._advance(event, steps, self.MAX_COMPLETIONS + 1)

    def _advance(self, event: object, steps: Steps, n_left: int) -> Any:
        """Takes enabled steps, at most `n_left`, until an effect waits or the machine rests (None)."""
        context, n_allowed = self.context, self.MAX_COMPLETIONS + 1
        try:
            while True:
                for guard, effect, node in steps:
                    if guard is None or guard(context, event):
                        if not n_left:
                            self._overflow(event)
                        n_left -= 1
                        if effect is not None:
                            waiting = effect(context, event)
                            if waiting is not None:
                                self._pending = (node, n_left)
                                return waiting
                        self._node = node
                        steps = node.completions
                        break
                else:
                    break
        except BaseException:
            self._accepts = self._node.accepts
            raise
        self._accepts = self._node.accepts
        if n_left == n_allowed:
            raise self._refusal(event)
        return None
