"""Worker threads behind a bounded ring, and the join of what they were given.

1. `try_submit` hands a call to the workers, or says no: when the ring is full, the pool is closed, or the caller is one
   of its workers (which would wait for itself). Whoever is told no runs the call on its own stack.
2. What was handed over under a `JoinGroup` is joined by it.
3. Nothing is lost: what never ran when the pool is closed, the closing thread runs.

Python threads share one interpreter lock. They gain where calls release it (native kernels, reads, sleeps); calls of
plain Python only interleave, and a hand-over costs tens of microseconds. A worker that looks for work gives the lock
away at every look, or it would keep the others from making some; that is slower than being woken (a round trip of 20
microseconds becomes one of 70), so workers sleep at once unless `n_spins` says otherwise. Native lanes do spin.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from emel.sm.errors import MachineError
from emel.sm.join import JoinGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    Call = Callable[[], object]
    Entry = tuple[Call, "JoinGroup | None", int]

DEFAULT_N_WORKERS = 8
DEFAULT_N_TASKS = 16
DEFAULT_N_SPINS = 0
CLOSE_TIMEOUT_SECONDS = 60.0


class WorkerPool:
    """`n_workers` threads, alive from construction to `close`; up to `n_tasks` calls wait for them."""

    __slots__ = (
        "__weakref__",
        "_busy",
        "_closed",
        "_finalizer",
        "_free",
        "_ids",
        "_inline",
        "_queue",
        "_threads",
        "n_tasks",
    )

    def __init__(
        self, n_workers: int = DEFAULT_N_WORKERS, n_tasks: int = DEFAULT_N_TASKS, n_spins: int = DEFAULT_N_SPINS
    ) -> None:
        if n_workers < 1 or n_tasks < 1 or n_spins < 0:
            raise ValueError(
                f"a pool of {n_workers} workers, {n_tasks} tasks and {n_spins} spins cannot be: "
                "at least 1 worker and 1 task, and no negative number of spins"
            )
        self.n_tasks = n_tasks
        self._queue: SimpleQueue[Entry | None] = SimpleQueue()
        self._free = [None] * n_tasks  # a token for each free place in the ring
        self._busy: list[None] = []  # a token for each worker that runs a call
        self._inline = threading.Lock()  # held by the one caller that runs a call instead of a worker
        self._closed = threading.Event()
        # The threads know the queue and not the pool, so a pool nobody closes can still be collected.
        arguments = (self._queue, self._free, self._busy, n_spins)
        self._threads = tuple(
            threading.Thread(target=_work, args=arguments, name=f"emel-worker-{index}", daemon=True)
            for index in range(n_workers)
        )
        self._finalizer = weakref.finalize(self, _end_workers, self._queue, self._threads)
        for thread in self._threads:
            thread.start()
        self._ids = frozenset(thread.ident for thread in self._threads)

    @property
    def n_workers(self) -> int:
        """Threads of the pool."""
        return len(self._threads)

    @property
    def is_worker(self) -> bool:
        """Whether the calling thread is one of this pool's."""
        return threading.get_ident() in self._ids

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return len(self._free) == self.n_tasks and not self._busy

    def try_submit(self, call: Call, group: JoinGroup | None = None) -> bool:
        """Hands `call` to the workers and its end to `group`; False when it is refused, and `group` is told.

        What a call without a group raises goes to `threading.excepthook`.
        """
        return self.try_submit_batch((call,), group)

    def try_submit_batch(self, calls: Sequence[Call], group: JoinGroup | None = None) -> bool:
        """Hands all of `calls` to the workers, or none of them."""
        if not self._claim(len(calls)):
            if group is not None:
                group.refuse()
            return False
        for call in calls:
            self._queue.put((call, group, 0 if group is None else group.start_one()))
        return True

    def run_or_schedule_and_wait(self, call: Call) -> bool:
        """Runs `call` here and now if the pool is idle, else on a worker; returns when it has ended.

        False when it is refused: the pool is full, or the caller is one of its workers. Raises what `call` raises.
        """
        if self.is_worker:
            return False
        if self.is_idle and self._inline.acquire(blocking=False):
            try:
                call()
            finally:
                self._inline.release()
            return True
        group = JoinGroup()
        return self.try_submit(call, group) and group.wait()

    def close(self) -> int:
        """Ends the workers once they have run what is in the ring; harmless when repeated.

        The closing thread itself runs what no worker took; the number of these is returned.
        MachineError when a worker closes its own pool, or a worker or a submitting thread does not come to an end.
        """
        if self.is_worker:
            raise MachineError("a worker cannot close its own pool: it would wait for itself")
        if self._closed.is_set():
            return 0
        self._closed.set()
        self._finalizer()
        if any(thread.is_alive() for thread in self._threads):
            raise MachineError(f"a worker still runs its call after {CLOSE_TIMEOUT_SECONDS:g} s and was left to it")
        self._ids = frozenset()  # other threads may get these numbers now
        return _run_left_over(self._queue, self._free, self.n_tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self, n_places: int) -> bool:
        """Takes places in the ring: all, or none."""
        if self._closed.is_set() or self.is_worker:
            return False
        for n_taken in range(n_places):
            try:
                self._free.pop()
            except IndexError:
                self._free.extend([None] * n_taken)
                return False
        return True


def _work(queue: SimpleQueue[Entry | None], free: list[None], busy: list[None], n_spins: int) -> None:
    """A worker: runs calls until it takes None."""
    while True:
        n_left = n_spins
        while n_left and queue.empty():  # stays warm for a moment, giving the interpreter lock away at every look
            n_left -= 1
            time.sleep(0)
        entry = queue.get()
        if entry is None:
            return
        busy.append(None)
        free.append(None)
        call, group, index = entry
        del entry
        error = _run(call, group)
        del call
        busy.pop()  # before the join: whoever returns from it finds the worker idle
        if group is not None:
            group.complete(index, error)
        del group, error


def _run(call: Call, group: JoinGroup | None) -> BaseException | None:
    """What `call` raised; handed to `threading.excepthook` when there is no group."""
    try:
        call()
    except BaseException as error:
        if group is not None:
            return error
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
    return None


def _end_workers(queue: SimpleQueue[Entry | None], threads: tuple[threading.Thread, ...]) -> None:
    """Has every worker end after what is queued, and waits for it."""
    for _ in threads:
        queue.put(None)
    deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():  # the last reference to a pool may be dropped by its own worker
            thread.join(max(0.0, deadline - time.monotonic()))


def _next_entry(queue: SimpleQueue[Entry | None]) -> Entry | None:
    try:
        return queue.get(timeout=CLOSE_TIMEOUT_SECONDS)
    except Empty:
        raise MachineError(
            f"a task submitted to this pool was not handed over within {CLOSE_TIMEOUT_SECONDS} s: a submitter is stuck"
        ) from None


def _run_left_over(queue: SimpleQueue[Entry | None], free: list[None], n_tasks: int) -> int:
    """Takes every place of the ring, running what fills it: a submission under way counts, a later one finds none."""
    n_run = 0
    for _ in range(n_tasks):
        try:
            free.pop()
            continue
        except IndexError:
            entry = _next_entry(queue)
        assert entry is not None
        call, group, index = entry
        error = _run(call, group)
        if group is not None:
            group.complete(index, error)
        n_run += 1
    return n_run
