"""Worker pool and join: what is taken, what is refused, and that a join returns neither early nor late."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

from emel.sm import MachineError, workers
from emel.sm.join import JoinGroup
from emel.sm.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 20.0  # seconds; only a broken pool takes them


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


class Gate:
    """A call that says it has begun and does not end before it is opened."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.opened.wait(PATIENCE)


def occupy(pool: WorkerPool) -> list[Gate]:
    """Has every worker run a call that only ends when told."""
    gates = [Gate() for _ in range(pool.n_workers)]
    for gate in gates:
        assert pool.try_submit(gate)
        assert gate.begun.wait(PATIENCE)
    return gates


def test_every_call_runs_and_the_group_joins_them() -> None:
    done: list[int] = []
    with WorkerPool(2) as pool:
        group = JoinGroup()
        for index in range(5):
            assert pool.try_submit(partial(done.append, index), group)
        assert group.wait() is True
        assert sorted(done) == [0, 1, 2, 3, 4]


def test_calls_really_overlap() -> None:
    barrier = threading.Barrier(2)
    with WorkerPool(2) as pool:
        group = JoinGroup()
        assert pool.try_submit_batch([lambda: barrier.wait(PATIENCE)] * 2, group)
        assert group.wait() is True


def test_ring_uses_all_its_places_and_refuses_one_more() -> None:
    log: list[str] = []
    with WorkerPool(1, n_tasks=2) as pool:
        (gate,) = occupy(pool)
        group = JoinGroup()
        assert pool.try_submit(lambda: log.append("first"), group)
        assert pool.try_submit(lambda: log.append("second"), group)
        assert not pool.try_submit(lambda: log.append("third"), group)
        assert log == []
        gate.opened.set()
        assert group.wait() is False  # one was refused
        assert log == ["first", "second"]
        assert pool.try_submit(lambda: log.append("fourth"), group)
        assert group.wait() is True  # a new round


def test_batch_is_taken_whole_or_not_at_all() -> None:
    log: list[int] = []
    with WorkerPool(1, n_tasks=3) as pool:
        (gate,) = occupy(pool)
        group = JoinGroup()
        assert pool.try_submit(lambda: log.append(0), group)
        assert not pool.try_submit_batch([lambda: log.append(1)] * 3, group)
        assert pool.try_submit_batch([lambda: log.append(2)] * 2, group)
        gate.opened.set()
        assert group.wait() is False
        assert log == [0, 2, 2]
        assert pool.try_submit_batch([], group)
        assert group.wait() is True


def test_worker_is_refused_by_its_own_pool_and_taken_by_another() -> None:
    answers: list[object] = []
    with WorkerPool(2) as pool, WorkerPool(1) as other:

        def nest() -> None:
            group = JoinGroup()
            answers.append(pool.try_submit(lambda: answers.append("never"), group))
            answers.append(group.wait())
            answers.append(pool.try_submit_batch([int, int]))
            answers.append(pool.run_or_schedule_and_wait(lambda: answers.append("never")))
            answers.append((pool.is_worker, other.is_worker))
            with pytest.raises(MachineError, match="a worker cannot close its own pool"):
                pool.close()
            answers.append(other.try_submit(int, group) and group.wait())

        group = JoinGroup()
        assert pool.try_submit(nest, group)
        assert group.wait() is True
        assert answers == [False, False, False, False, (True, False), True]
        assert not pool.is_worker


def test_run_or_schedule_runs_here_when_the_pool_is_idle_and_there_when_not() -> None:
    threads: list[int] = []
    with WorkerPool(2) as pool:
        assert pool.run_or_schedule_and_wait(lambda: threads.append(threading.get_ident()))
        gate = Gate()
        assert pool.try_submit(gate)
        assert gate.begun.wait(PATIENCE)
        assert pool.run_or_schedule_and_wait(lambda: threads.append(threading.get_ident()))
        gate.opened.set()
    assert threads[0] == threading.get_ident() != threads[1]


def test_run_or_schedule_is_refused_by_a_full_pool_and_raises_what_the_call_raises() -> None:
    def fail() -> None:
        raise OSError("no disk")

    with WorkerPool(1, n_tasks=1) as pool:
        with pytest.raises(OSError, match="no disk"):
            pool.run_or_schedule_and_wait(fail)
        (gate,) = occupy(pool)
        assert pool.try_submit(int)
        assert not pool.run_or_schedule_and_wait(fail)
        gate.opened.set()
        while not pool.is_idle:
            time.sleep(0.001)
        gate = Gate()
        assert pool.try_submit(gate)
        assert gate.begun.wait(PATIENCE)
        threading.Timer(0.02, gate.opened.set).start()
        with pytest.raises(OSError, match="no disk"):
            pool.run_or_schedule_and_wait(fail)


def test_join_raises_what_the_earliest_call_raised_after_all_have_ended() -> None:
    ended: list[str] = []

    def end_late() -> None:
        time.sleep(0.02)
        ended.append("slow")

    def fail(seconds: float, error: Exception) -> None:
        time.sleep(seconds)
        raise error

    with WorkerPool(3) as pool:
        group = JoinGroup()
        pool.try_submit(end_late, group)
        pool.try_submit(partial(fail, 0.01, ValueError("earliest")), group)
        pool.try_submit(partial(fail, 0.0, OSError("first in time")), group)
        with pytest.raises(ValueError, match="earliest"):
            group.wait()
        assert ended == ["slow"]
        assert group.wait() is True


def test_join_of_nothing_returns_at_once() -> None:
    group = JoinGroup()
    assert group.wait() is True
    group.refuse()
    assert group.wait() is False
    assert group.wait() is True


def test_early_end_does_not_satisfy_a_later_wait() -> None:
    with WorkerPool(1) as pool:
        group = JoinGroup()
        assert pool.try_submit(int, group)
        while not pool.is_idle:
            time.sleep(0.001)
        gate = Gate()
        assert pool.try_submit(gate, group)
        threading.Timer(0.02, gate.opened.set).start()
        assert group.wait() is True
        assert gate.opened.is_set()


def test_interrupted_join_still_waits_for_the_calls() -> None:
    class InterruptedLock:
        def __init__(self, lock: threading.Lock) -> None:
            self.lock = lock
            self.n_interrupts = 2

        def acquire(self) -> None:
            if self.n_interrupts:
                self.n_interrupts -= 1
                raise KeyboardInterrupt
            self.lock.acquire()

        def release(self) -> None:
            self.lock.release()

    with WorkerPool(1) as pool:
        group = JoinGroup()
        group._wake = InterruptedLock(group._wake)  # type: ignore[assignment]
        gate = Gate()
        assert pool.try_submit(gate, group)
        threading.Timer(0.02, gate.opened.set).start()
        with pytest.raises(KeyboardInterrupt):
            group.wait()
        assert gate.opened.is_set()
        assert group.wait() is True


def test_call_without_a_group_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda args: seen.append((str(args.exc_value), args.thread.name.rpartition("-")[0]))
    )

    def fail() -> None:
        raise OSError("no disk")

    with WorkerPool(1) as pool:
        assert pool.try_submit(fail)
        group = JoinGroup()
        assert pool.try_submit(int, group)  # the worker lives on
        assert group.wait() is True
    assert seen == [("no disk", "emel-worker")]


def test_closing_runs_everything_that_was_taken() -> None:
    done: list[int] = []
    pool = WorkerPool(1, n_tasks=4)
    (gate,) = occupy(pool)
    for index in range(4):
        assert pool.try_submit(partial(done.append, index))
    threading.Timer(0.02, gate.opened.set).start()
    assert pool.close() == 0  # the worker ran them
    assert done == [0, 1, 2, 3]
    assert not pool.try_submit(lambda: done.append(9))
    assert pool.close() == 0
    assert done == [0, 1, 2, 3]


def test_what_no_worker_took_runs_on_the_closing_thread() -> None:
    threads: list[int] = []
    group = JoinGroup()
    with WorkerPool(1, n_tasks=3) as pool:
        # A submission that has its place and is overtaken by close():
        assert pool._claim(2)
        group.start_one()
        index = group.start_one()
        pool._finalizer()
        pool._queue.put((lambda: threads.append(threading.get_ident()), None, 0))
        late = (lambda: threads.append(threading.get_ident()), group, index)
        threading.Timer(0.02, lambda: pool._queue.put(late)).start()
        assert pool.close() == 2
    group.complete(0, None)
    assert group.wait() is True
    assert threads == [threading.get_ident()] * 2


def test_closing_says_when_a_worker_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CLOSE_TIMEOUT_SECONDS", 0.02)
    pool = WorkerPool(1)
    (gate,) = occupy(pool)
    with pytest.raises(MachineError, match=r"a worker still runs its call after 0\.02 s and was left to it"):
        pool.close()
    gate.opened.set()
    pool._threads[0].join(PATIENCE)


def test_closing_says_when_a_submission_never_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CLOSE_TIMEOUT_SECONDS", 0.02)
    pool = WorkerPool(1)
    pool._claim(1)
    with pytest.raises(MachineError, match=r"not handed over within 0\.02 s"):
        pool.close()


def test_pool_nobody_closes_ends_when_it_is_dropped() -> None:
    pool = WorkerPool(2)
    threads, witness = pool._threads, weakref.ref(pool)
    del pool
    gc.collect()
    assert witness() is None
    assert not any(thread.is_alive() for thread in threads)


def test_pool_may_be_dropped_by_its_own_worker() -> None:
    pool = WorkerPool(1)
    (thread,) = pool._threads
    holder = [pool]
    gate = Gate()

    def drop() -> None:
        gate()
        holder.clear()
        gc.collect()

    assert pool.try_submit(drop)
    del pool
    gate.opened.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("sizes", [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_pool_of_impossible_size_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="cannot be: at least 1 worker and 1 task"):
        WorkerPool(*sizes)


def test_four_producers_have_every_call_run_once() -> None:
    n_calls, n_producers = 50, 4
    runs: list[tuple[int, int]] = []
    with WorkerPool(4, n_tasks=3) as pool:

        def produce(producer: int) -> None:
            group = JoinGroup()
            for index in range(n_calls):
                call = lambda index=index: runs.append((producer, index))  # noqa: E731
                while not pool.try_submit(call, group):
                    time.sleep(0)
            group.wait()
            assert len([each for each in runs if each[0] == producer]) == n_calls

        producers = [threading.Thread(target=produce, args=(index,)) for index in range(n_producers)]
        for thread in producers:
            thread.start()
        for thread in producers:
            thread.join(PATIENCE)
    assert sorted(runs) == [(producer, index) for producer in range(n_producers) for index in range(n_calls)]


def fork_join_rounds(n_rounds: int, n_lanes: int, n_workers: int, n_spins: int) -> None:
    """Every round joins exactly its own lanes; a lane that ended late would leave the count of a later round wrong."""
    counts = [0] * n_lanes
    group = JoinGroup()

    def lane_of(index: int) -> Callable[[], None]:
        def run() -> None:
            counts[index] += 1

        return run

    lanes = [lane_of(index) for index in range(n_lanes)]
    with WorkerPool(n_workers, n_tasks=n_lanes, n_spins=n_spins) as pool:
        for n_done in range(1, n_rounds + 1):
            assert pool.try_submit_batch(lanes, group)
            assert group.wait() is True
            assert counts == [n_done] * n_lanes


@pytest.mark.parametrize("n_spins", [0, 20])
@pytest.mark.parametrize(("n_lanes", "n_workers"), [(1, 1), (2, 2), (8, 8), (8, 2), (3, (os.cpu_count() or 1) * 4)])
def test_join_is_exact_whatever_the_lanes_and_workers(n_lanes: int, n_workers: int, n_spins: int) -> None:
    fork_join_rounds(300, n_lanes, n_workers, n_spins)


def test_worker_and_its_place_are_free_again_when_the_join_returns() -> None:
    class SlowGroup(JoinGroup):
        """Takes its time after the last end, so that whatever a worker does then is seen to come late."""

        __slots__ = ()

        def complete(self, index: int, error: BaseException | None) -> None:
            super().complete(index, error)
            time.sleep(0.005)

    with WorkerPool(1, n_tasks=1) as pool:
        for group, n_rounds in ((SlowGroup(), 5), (JoinGroup(), 5000)):
            for _ in range(n_rounds):
                assert pool.try_submit(int, group)
                assert group.wait() is True
                assert pool.is_idle


@pytest.mark.slow
@pytest.mark.parametrize("switch_seconds", [1e-6, 5e-3])
def test_join_is_exact_over_twenty_thousand_rounds_of_eight_lanes_on_eight_workers(switch_seconds: float) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(switch_seconds)  # a short one interleaves threads in the middle of everything
    try:
        fork_join_rounds(20_000, 8, 8, 20)
    finally:
        sys.setswitchinterval(before)
