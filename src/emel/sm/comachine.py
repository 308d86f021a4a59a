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
        waiting = self._advance(event)
        if waiting is None:
            return not self._node.failed
        return INLINE.drive(self._rest(event, waiting)).result()

    def dispatch_async(self, event: object) -> Task:
        """Hands the run of `event` to the scheduler policy; under the inline policy the task is complete on return."""
        if self._policy is not INLINE:
            return self._policy.start(self, event)
        try:
            waiting = self._advance(event)
        except Exception as error:
            return Task.failed(error)
        if waiting is None:
            return REJECTED if self._node.failed else ACCEPTED
        return INLINE.drive(self._rest(event, waiting))

    @types.coroutine
    def run(self, event: object) -> Generator[Trap, Any, bool]:
        """The scheduler core, the whole run of one event: yields the traps of its effects, returns its result."""
        return (yield from self._rest(event, self._advance(event)))

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
            waiting = self._advance(event, node, n_left)
        return not self._node.failed

    def _advance(self, event: object, after: Node | None = None, n_left: int = 0) -> Any:
        """Takes enabled steps until an effect waits (returns what it gave) or the machine rests (returns None).

        Begins the run of `event`, or goes on with it from the completion rows of `after`, with `n_left` steps left.
        """
        begun: Steps | None = None
        if after is None:
            begun = self._accepts.get(type(event))
            if begun is None:
                raise self._refusal(event)
            self._accepts = RUNNING
            steps, n_left = begun, self.MAX_COMPLETIONS + 1
        else:
            steps = after.completions
        context = self.context
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
        if steps is begun:  # not one step was enabled
            raise self._refusal(event)
        return None
