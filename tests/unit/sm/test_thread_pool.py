from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from emel.kernel.pool import LanePool
from emel.sm import CoMachine, ReentrantDispatch, RefusedTrap, Row, UnexpectedEvent, UnfinishedTask
from emel.sm.policies import InlinePolicy
from emel.sm.thread_pool import ThreadPoolPolicy
from emel.sm.traps import Lanes, checkpoint, on_lanes, run_lanes
from emel.sm.workers import WorkerPool
from unit.sm.samples import Flip, Switch, SwitchContext, flip
from unit.sm.test_workers import PATIENCE, Gate, occupy

if TYPE_CHECKING:
    from collections.abc import Iterator


class FlipMachine(CoMachine[Switch, SwitchContext]):
    """Runs what its context says at every flip."""

    INITIAL = Switch.OFF
    TABLE = (
        Row(Switch.OFF, Flip, None, flip, Switch.ON),
        Row(Switch.ON, Flip, None, flip, Switch.OFF),
    )


async def fork(context: SwitchContext, event: Flip) -> None:
    """Runs what the context gives as lanes."""
    await checkpoint()
    context.result = await run_lanes(context.run())  # type: ignore[arg-type]


class ForkMachine(CoMachine[Switch, SwitchContext]):
    """Forks lanes."""

    INITIAL = Switch.OFF
    TABLE = (Row(Switch.OFF, Flip, None, fork, Switch.OFF),)


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    with WorkerPool(2, n_tasks=2) as pool:
        yield pool


def test_task_is_pending_until_a_worker_has_run_it(workers: WorkerPool) -> None:
    policy = ThreadPoolPolicy(workers)
    threads: list[int] = []
    machine = FlipMachine(SwitchContext(lambda: threads.append(threading.get_ident())), policy)
    gates = occupy(workers)
    task = machine.dispatch_async(Flip())
    assert not task.done
    with pytest.raises(UnfinishedTask, match=r"^FlipMachine's Flip has not finished"):
        task.result()
    assert (machine.state, threads) == (Switch.OFF, [])
    for gate in gates:
        gate.opened.set()
    assert task.wait(PATIENCE)
    assert task.result() is True
    assert machine.state is Switch.ON
    assert threads != [threading.get_ident()]
    assert policy.workers is workers


def test_dispatch_runs_here_while_the_pool_is_idle_and_on_a_worker_when_not(workers: WorkerPool) -> None:
    threads: list[int] = []
    machine = FlipMachine(SwitchContext(lambda: threads.append(threading.get_ident())), ThreadPoolPolicy(workers))
    assert machine.dispatch(Flip()) is True
    gate = Gate()
    workers.try_submit(gate)
    assert gate.begun.wait(PATIENCE)
    assert machine.dispatch(Flip()) is True
    gate.opened.set()
    assert threads[0] == threading.get_ident() != threads[1]
    assert machine.state is Switch.OFF


def test_machine_has_one_active_dispatch_and_rejects_another(workers: WorkerPool) -> None:
    gate = Gate()
    machine = FlipMachine(SwitchContext(gate), ThreadPoolPolicy(workers))
    task = machine.dispatch_async(Flip())
    assert gate.begun.wait(PATIENCE)
    assert machine.dispatch(Flip()) is False
    assert machine.dispatch_async(Flip()).result() is False
    gate.opened.set()
    assert task.wait(PATIENCE)
    assert (machine.state, machine.context.n_flips) == (Switch.ON, 1)
    assert machine.dispatch(Flip()) is True


def test_machine_that_waits_in_the_ring_rejects_another_dispatch_too(workers: WorkerPool) -> None:
    gates = occupy(workers)
    machine = FlipMachine(SwitchContext(), ThreadPoolPolicy(workers))
    task = machine.dispatch_async(Flip())
    assert machine.dispatch_async(Flip()).result() is False
    for gate in gates:
        gate.opened.set()
    assert task.wait(PATIENCE)
    assert machine.context.n_flips == 1


def test_different_machines_proceed_at_once(workers: WorkerPool) -> None:
    policy, barrier = ThreadPoolPolicy(workers), threading.Barrier(2)
    machines = [FlipMachine(SwitchContext(lambda: barrier.wait(PATIENCE)), policy) for _ in range(2)]
    tasks = [machine.dispatch_async(Flip()) for machine in machines]
    assert [task.wait(PATIENCE) and task.result() for task in tasks] == [True, True]


def test_full_pool_rejects_and_leaves_the_machine_untouched(workers: WorkerPool) -> None:
    policy = ThreadPoolPolicy(workers)
    gates = occupy(workers)
    queued = [FlipMachine(SwitchContext(), policy) for _ in range(2)]
    tasks = [machine.dispatch_async(Flip()) for machine in queued]
    machine = FlipMachine(SwitchContext(), policy)
    assert machine.dispatch_async(Flip()).result() is False
    assert machine.dispatch(Flip()) is False
    assert (machine.state, machine.context.n_flips) == (Switch.OFF, 0)
    for gate in gates:
        gate.opened.set()
    assert [task.wait(PATIENCE) and task.result() for task in tasks] == [True, True]
    assert machine.dispatch(Flip()) is True


def test_dispatch_from_a_worker_runs_on_its_own_stack(workers: WorkerPool) -> None:
    policy = ThreadPoolPolicy(workers)
    threads: list[int] = []
    inner = FlipMachine(SwitchContext(lambda: threads.append(threading.get_ident())), policy)

    def nest() -> None:
        threads.append(threading.get_ident())
        assert inner.dispatch(Flip()) is True
        task = inner.dispatch_async(Flip())
        assert task.done
        assert task.result() is True

    outer = FlipMachine(SwitchContext(nest), policy)
    task = outer.dispatch_async(Flip())
    assert task.wait(PATIENCE)
    assert task.result() is True
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize("is_async", [True, False])
def test_machine_that_dispatches_to_itself_is_told(workers: WorkerPool, is_async: bool) -> None:
    def dispatch_to_itself() -> None:
        with pytest.raises(ReentrantDispatch, match="FlipMachine in OFF got Flip while it was running"):
            machine.dispatch(Flip())
        with pytest.raises(ReentrantDispatch):
            machine.dispatch_async(Flip()).result()

    machine = FlipMachine(SwitchContext(dispatch_to_itself), ThreadPoolPolicy(workers))
    if is_async:
        task = machine.dispatch_async(Flip())
        assert task.wait(PATIENCE)
        assert task.result() is True
    else:
        assert machine.dispatch(Flip()) is True


@pytest.mark.parametrize("is_busy", [False, True])
def test_errors_of_a_run_are_raised_by_its_result(workers: WorkerPool, is_busy: bool) -> None:
    def fail() -> None:
        raise OSError("no disk")

    gate = Gate()
    if is_busy:
        workers.try_submit(gate)
        assert gate.begun.wait(PATIENCE)
    machine = FlipMachine(SwitchContext(fail), ThreadPoolPolicy(workers))
    with pytest.raises(OSError, match="no disk"):
        machine.dispatch(Flip())
    task = machine.dispatch_async(Flip())
    assert task.wait(PATIENCE)
    with pytest.raises(OSError, match="no disk"):
        task.result()
    with pytest.raises(UnexpectedEvent, match="got unexpected str"):
        machine.dispatch("no event")
    gate.opened.set()
    assert (machine.state, machine.is_running) == (Switch.OFF, False)
    machine.context.run = int
    assert machine.dispatch(Flip()) is True


def test_system_exit_of_a_run_ends_its_task_and_not_the_worker(
    workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type.__name__))

    def leave() -> None:
        raise SystemExit

    machine = FlipMachine(SwitchContext(leave), ThreadPoolPolicy(workers))
    task = machine.dispatch_async(Flip())
    assert task.wait(PATIENCE)
    assert task.result() is False
    while not workers.is_idle:
        time.sleep(0.001)
    assert seen == ["SystemExit"]
    machine.context.run = int
    assert machine.dispatch(Flip()) is True


def test_lanes_are_forked_to_workers_and_joined_in_order(workers: WorkerPool) -> None:
    barrier = threading.Barrier(3)
    threads: dict[int, int] = {}

    def lane(index: int) -> int:
        threads[index] = threading.get_ident()
        barrier.wait(PATIENCE)
        return index * 10

    context = SwitchContext(lambda: [lambda index=index: lane(index) for index in range(3)])
    assert ForkMachine(context, ThreadPoolPolicy(workers)).dispatch(Flip()) is True
    assert context.result == [0, 10, 20]
    assert threads[0] == threading.get_ident()  # the caller takes lane 0
    assert len(set(threads.values())) == 3


def test_lanes_the_pool_refuses_run_on_the_callers_stack() -> None:
    threads: list[int] = []
    with WorkerPool(1, n_tasks=1) as workers:
        policy = ThreadPoolPolicy(workers)
        context = SwitchContext(lambda: [lambda: threads.append(threading.get_ident())] * 5)
        (gate,) = occupy(workers)
        filler = FlipMachine(SwitchContext(), policy).dispatch_async(Flip())
        run = ForkMachine(context, InlinePolicy()).run(Flip())
        trap = next(run)
        trap = run.send(None)
        assert policy._answer(trap) == [None] * 5
        run.close()
        gate.opened.set()
        assert filler.wait(PATIENCE)
    assert threads == [threading.get_ident()] * 5


def test_lanes_of_a_run_on_a_worker_stay_on_it(workers: WorkerPool) -> None:
    threads: list[int] = []
    context = SwitchContext(lambda: [lambda: threads.append(threading.get_ident())] * 3)
    task = ForkMachine(context, ThreadPoolPolicy(workers)).dispatch_async(Flip())
    assert task.wait(PATIENCE)
    assert task.result() is True
    assert len(threads) == 3
    assert len(set(threads)) == 1


def test_error_of_the_lowest_lane_is_raised_when_all_have_ended(workers: WorkerPool) -> None:
    ended: list[int] = []

    def lane(index: int) -> None:
        if index == 1:
            time.sleep(0.02)
        ended.append(index)
        if index:
            raise ValueError(f"lane {index}")

    context = SwitchContext(lambda: [lambda index=index: lane(index) for index in range(3)])
    machine = ForkMachine(context, ThreadPoolPolicy(workers))
    with pytest.raises(ValueError, match="lane 1"):
        machine.dispatch(Flip())
    assert sorted(ended) == [0, 1, 2]
    context.run = list
    assert machine.dispatch(Flip()) is True
    assert context.result == []


def test_effect_gets_the_native_lanes_of_the_policy(workers: WorkerPool) -> None:
    """The native pool is behind the same boundary: a run on any worker may use it, one at a time."""

    def run_natively(lanes: LanePool) -> int:
        lanes.fork_join()
        return lanes.n_lanes

    async def count_lanes(context: SwitchContext, event: Flip) -> None:
        context.result = await on_lanes(run_natively)

    class LaneMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (Row(Switch.OFF, Flip, None, count_lanes, Switch.OFF),)

    with LanePool(2) as pool:
        lanes: Lanes = pool
        machine = LaneMachine(SwitchContext(), ThreadPoolPolicy(workers, lanes))
        assert machine.dispatch(Flip()) is True
        task = machine.dispatch_async(Flip())
        assert task.wait(PATIENCE)
        assert task.result() is True
    assert machine.context.result == 2
    without = LaneMachine(SwitchContext(), ThreadPoolPolicy(workers))
    with pytest.raises(RefusedTrap, match="a thread-pool policy without lanes cannot answer OnLanes"):
        without.dispatch(Flip())


def test_closing_the_pool_ends_every_task() -> None:
    workers = WorkerPool(1, n_tasks=4)
    policy = ThreadPoolPolicy(workers)
    (gate,) = occupy(workers)
    machines: list[Any] = [FlipMachine(SwitchContext(), policy) for _ in range(4)]
    tasks = [machine.dispatch_async(Flip()) for machine in machines]
    threading.Timer(0.02, gate.opened.set).start()
    workers.close()
    assert [task.result() for task in tasks] == [True] * 4
    assert machines[0].dispatch_async(Flip()).result() is False  # closed: nothing is taken


def test_one_machine_under_many_writers_takes_each_event_whole_or_not_at_all() -> None:
    n_threads, n_events = 4, 300
    accepted: list[bool] = []
    with WorkerPool(2, n_tasks=2) as workers:
        machine = FlipMachine(SwitchContext(), ThreadPoolPolicy(workers))

        def write(way: int) -> None:
            for index in range(n_events):
                if (index + way) % 2:
                    accepted.append(machine.dispatch(Flip()))
                else:
                    task = machine.dispatch_async(Flip())
                    assert task.wait(PATIENCE)
                    accepted.append(task.result())

        threads = [threading.Thread(target=write, args=(way,)) for way in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(accepted) == n_threads * n_events
    assert machine.context.n_flips == sum(accepted) > 0
    assert machine.state is (Switch.ON if sum(accepted) % 2 else Switch.OFF)
