"""The thread-pool policy: runs proceed on worker threads, lanes are forked and joined.

1. `dispatch_async` hands the run to a worker and returns a task that ends later; a full pool rejects it. `dispatch`
   runs on the caller's stack when the pool is idle, else on a worker, and returns when the run has ended.
2. One run of a machine at a time: another dispatch to it is rejected. Different machines proceed at once.
3. From a worker of the pool nothing is handed on: a dispatch, and lanes, run on its own stack.
4. Lanes that the pool does not take are run by the caller, after lane 0, which it always runs.
Pools, like machines, hand work to each other in one direction only: two that wait for each other wait for ever.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from emel.sm.join import JoinGroup
from emel.sm.policies import Runnable, SchedulerPolicy, answer_inline, completed, drive, refusal, run_label
from emel.sm.task import REJECTED, Promise, Task
from emel.sm.traps import OnLanes, RunLanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.sm.traps import Lanes
    from emel.sm.workers import WorkerPool


class _Claim:
    """The right to run a machine; `thread_id` is where it runs, None before."""

    __slots__ = ("thread_id",)

    def __init__(self) -> None:
        self.thread_id: int | None = None


class ThreadPoolPolicy(SchedulerPolicy):
    """See the file's header. `workers` is the pool, `lanes` what effects get by `on_lanes`: the native lane pool.

    Whoever made the two closes them, when no run is under way.
    """

    __slots__ = ("_claims", "_lanes", "_workers")

    def __init__(self, workers: WorkerPool, lanes: Lanes | None = None) -> None:
        self._workers = workers
        self._lanes = lanes
        self._claims: dict[int, _Claim] = {}  # by id of the machine, which its run keeps alive

    @property
    def workers(self) -> WorkerPool:
        """The pool runs proceed on."""
        return self._workers

    def start(self, machine: Runnable, event: object) -> Task:
        """Hands the run to a worker; REJECTED when the machine is running already or the pool is full."""
        claim = _Claim()
        if (refused := self._claim(machine, event, claim)) is not None:
            return refused
        if self._workers.is_worker:
            return self._run_here(machine, event, claim)
        promise = Promise(run_label(machine, event))
        if not self._workers.try_submit(partial(self._run_on_worker, machine, event, claim, promise)):
            self._release(machine)
            return REJECTED
        return Task(promise)

    def run(self, machine: Runnable, event: object) -> bool:
        """Runs here when the pool is idle or the caller is a worker, else on a worker; False when it is rejected."""
        claim = _Claim()
        if (refused := self._claim(machine, event, claim)) is not None:
            return refused.result()
        if self._workers.is_worker:
            return self._run_here(machine, event, claim).result()
        ended: list[Task] = []
        if self._workers.run_or_schedule_and_wait(lambda: ended.append(self._run_here(machine, event, claim))):
            return ended[0].result()
        self._release(machine)
        return False

    def _claim(self, machine: Runnable, event: object, claim: _Claim) -> Task | None:
        """Claims the machine, in one atomic operation; what a dispatch gives when it is claimed already."""
        holder = self._claims.setdefault(id(machine), claim)
        if holder is claim:
            return None
        if holder.thread_id == threading.get_ident():
            return completed(machine.run(event), answer_inline)  # a dispatch to itself: the machine refuses it
        return REJECTED

    def _release(self, machine: Runnable) -> None:
        del self._claims[id(machine)]

    def _run_here(self, machine: Runnable, event: object, claim: _Claim) -> Task:
        claim.thread_id = threading.get_ident()
        try:
            return completed(machine.run(event), self._answer)
        finally:
            self._release(machine)

    def _run_on_worker(self, machine: Runnable, event: object, claim: _Claim, promise: Promise) -> None:
        claim.thread_id = threading.get_ident()
        error: Exception | None = None
        result = False
        try:
            result = drive(machine.run(event), self._answer)
        except Exception as raised:
            error = raised
        finally:
            self._release(machine)  # first: whoever learns of the end may dispatch again
            if error is None:
                promise.finish(result)
            else:
                promise.fail(error)

    def _answer(self, trap: object) -> object:
        if isinstance(trap, RunLanes):
            return self._fork_join(trap.calls)
        if isinstance(trap, OnLanes):
            if self._lanes is None:
                raise refusal(trap, "a thread-pool policy without lanes")
            return trap.call(self._lanes)
        return answer_inline(trap)

    def _fork_join(self, calls: Sequence[Callable[[], object]]) -> list[object]:
        """Lane 0 here, the others on workers or, when refused, here too; the error of the lowest lane that failed."""
        results: list[Any] = [None] * len(calls)
        errors: dict[int, BaseException] = {}

        def run_lane(lane: int) -> None:
            try:
                results[lane] = calls[lane]()
            except BaseException as error:
                errors[lane] = error

        group = JoinGroup()
        try:
            mine = [
                lane
                for lane in range(len(calls))
                if not lane or not self._workers.try_submit(partial(run_lane, lane), group)
            ]
            for lane in mine:
                run_lane(lane)
        finally:
            group.wait()  # also when interrupted: the lanes use what the caller would free
        try:
            if errors:
                raise errors[min(errors)]
        finally:
            errors.clear()  # an error knows this frame by its traceback
        return results
