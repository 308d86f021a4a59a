"""Coroutine machines: like `Machine`, with effects that may wait.

The run of one event is a generator, written once, that scheduler policies drive. Under the inline policy a table
without generators and coroutines needs none of that: it is dispatched as a plain machine is, and costs about the same.
While an effect waits the machine is still running: another dispatch to it is refused.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, ClassVar

from emel.sm.errors import FramesExhausted
from emel.sm.frames import FRAMES, FramePool
from emel.sm.machine import RUNNING, BaseMachine
from emel.sm.policies import INLINE, SchedulerPolicy, answer_inline, drive
from emel.sm.row import C, S
from emel.sm.table import waits
from emel.sm.task import ACCEPTED, REJECTED, Task

if TYPE_CHECKING:
    from collections.abc import Generator

    from emel.sm.table import Node, Steps
    from emel.sm.traps import Trap


class CoMachine(BaseMachine[S, C]):
    """A machine whose effects may be generators or coroutines that wait by the traps of `emel.sm.traps`.

    A run that comes to rest in a state of FAILED had an error: its result is False. So is that of a run for which
    `frames` has no frame left, or its policy no room; nothing has changed then.
    """

    __slots__ = ("_frames", "_is_direct", "_policy")

    EFFECTS_MAY_WAIT: ClassVar[bool] = True
    WAITS: ClassVar[bool] = False  # whether the table has effects that are generators or coroutines

    _policy: SchedulerPolicy
    _frames: FramePool
    _is_direct: bool  # inline, and no effect is known to wait

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "TABLE" in vars(cls):
            cls.WAITS = any(waits(row.effect) for row in cls.TABLE)

    def __init__(self, context: C, policy: SchedulerPolicy = INLINE, frames: FramePool = FRAMES) -> None:
        super().__init__(context)
        self._policy = policy
        self._frames = frames
        self._is_direct = policy is INLINE and not self.WAITS

    @property
    def scheduler(self) -> SchedulerPolicy:
        """The policy that drives this machine's runs."""
        return self._policy

    @property
    def frames(self) -> FramePool:
        """Where the runs of this machine have their frames from."""
        return self._frames

    @property
    def has_frame(self) -> bool:
        """Whether a frame is free."""
        return self._frames.n_free > 0

    def dispatch(self, event: object) -> bool:
        """`dispatch_async(event).result()`, waiting for it first: see `Task.result` for what it returns and raises."""
        if not self._is_direct:
            return self._policy.run(self, event)
        steps = self._accepts.get(type(event))
        if steps is None:
            raise self._refusal(event)
        self._accepts = RUNNING
        try:
            context = self.context
            for guard, effect, node in steps:
                if guard is None or guard(context, event):
                    if effect is not None:
                        waiting = effect(context, event)
                        if waiting is not None:
                            drive(self._rest(event, waiting, node, self.MAX_COMPLETIONS), answer_inline)
                            return not self._node.failed
                    self._node = node
                    if node.completions:
                        self._complete(event)
                    return not self._node.failed
        finally:
            self._accepts = self._node.accepts
        raise self._refusal(event)

    def dispatch_async(self, event: object) -> Task:
        """Hands the run of `event` to the scheduler policy; under all but the thread pool the task is complete then."""
        if not self._is_direct:
            return self._policy.start(self, event)
        try:
            return ACCEPTED if self.dispatch(event) else REJECTED
        except Exception as error:
            return Task.failed(error)

    @types.coroutine
    def run(self, event: object) -> Generator[Trap, Any, bool]:
        """The scheduler core, the whole run of one event: yields the traps of its effects, returns its result."""
        frame = self._frames.take(self)
        if frame is None:
            return False
        try:
            steps = self._accepts.get(type(event))
            if steps is None:
                raise self._refusal(event)
            self._accepts = RUNNING
            try:
                last_tried = yield from self._steps(event, steps, self.MAX_COMPLETIONS + 1)
            finally:
                self._accepts = self._node.accepts
            if last_tried is steps:  # not one step was enabled
                raise self._refusal(event)
            return not self._node.failed
        finally:
            self._frames.give(frame)

    @types.coroutine
    def _steps(self, event: object, steps: Steps, n_left: int) -> Generator[Trap, Any, Steps]:
        """Takes up to `n_left` enabled steps, beginning among `steps`, until none is; returns those tried last."""
        context = self.context
        while True:
            for guard, effect, node in steps:
                if guard is None or guard(context, event):
                    if not n_left:
                        self._overflow(event)
                    n_left -= 1
                    if effect is not None:
                        waiting = effect(context, event)
                        if waiting is not None:
                            yield from waiting
                    self._node = node
                    steps = node.completions
                    break
            else:
                return steps

    @types.coroutine
    def _rest(self, event: object, waiting: Any, node: Node, n_left: int) -> Generator[Trap, Any, bool]:
        """What is left of a direct dispatch once a plain effect gave something to wait for; its row leads to `node`."""
        frame = self._frames.take(self)
        if frame is None:
            waiting.close()
            raise FramesExhausted(
                f"{self!r} has no frame to wait in: all {self._frames.n_frames} are taken; an effect that is declared "
                "a generator or coroutine would have had its dispatch rejected at the start"
            )
        try:
            yield from waiting
            self._node = node
            yield from self._steps(event, node.completions, n_left)
        finally:
            self._frames.give(frame)
        return True

    def _complete(self, event: object) -> None:
        """Takes completion rows of a direct dispatch until none is enabled."""
        context, node, n_left = self.context, self._node, self.MAX_COMPLETIONS
        while True:
            for guard, effect, destination in node.completions:
                if guard is None or guard(context, event):
                    if not n_left:
                        self._overflow(event)
                    n_left -= 1
                    if effect is not None:
                        waiting = effect(context, event)
                        if waiting is not None:
                            drive(self._rest(event, waiting, destination, n_left), answer_inline)
                            return
                    self._node = node = destination
                    break
            else:
                return
