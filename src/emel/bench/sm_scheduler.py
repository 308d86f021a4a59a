"""The suite `sm_scheduler`: what forking empty lanes and joining them costs, and what a dispatch costs by policy.

idle: nobody else uses the pool. busy: a second thread forks and joins on the same pool all the time; for the native
lanes, which run one thing at a time, that includes waiting for its turn.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from emel.bench.machine import n_cpus
from emel.bench.sm_timing import Bar, calls_of, measure
from emel.bench.sm_transition import Flip, lamp, switch
from emel.kernel.pool import LanePool
from emel.sm import CoMachine
from emel.sm.external import ExternalCompletionPolicy
from emel.sm.fifo import FifoPolicy
from emel.sm.join import JoinGroup
from emel.sm.policies import INLINE
from emel.sm.thread_pool import ThreadPoolPolicy
from emel.sm.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.bench.sm_timing import Line, Timed

N_LANES = (1, 2, 4, 8)
NATIVE_BAR = Bar(at_most_seconds=3e-6)  # two lanes


def run(n_runs: int, n_warmup: int) -> list[Line]:
    """Measures every policy, then every number of lanes, idle and busy; native lanes up to the number of CPUs."""
    lines = _policies(n_runs, n_warmup)
    for n_lanes in N_LANES:
        for make in (_native, _workers):
            if n_lanes > n_cpus() if make is _native else n_lanes == 1:
                continue
            with make(n_lanes) as (subject, round_trip):
                bars = {subject: NATIVE_BAR} if make is _native and n_lanes == 2 else {}
                timed = _timed(round_trip)
                test = f"fork/join, {n_lanes} lane{'s' if n_lanes > 1 else ''}"
                lines += measure(f"{test}, idle", {subject: timed}, n_runs, n_warmup, bars)
                with _in_background(round_trip):
                    lines += measure(f"{test}, busy", {subject: timed}, n_runs, n_warmup)
    return lines


def _policies(n_runs: int, n_warmup: int) -> list[Line]:
    with WorkerPool(1) as workers:
        policy = ThreadPoolPolicy(workers)
        subjects: dict[str, Timed] = {
            name: calls_of(lamp(CoMachine, switch, policy).dispatch, Flip())
            for name, policy in (
                ("inline", INLINE),
                ("fifo", FifoPolicy()),
                ("external completion", ExternalCompletionPolicy()),
                ("thread pool, idle", policy),
            )
        }
        subjects["thread pool, asynchronous"] = _hand_over(lamp(CoMachine, switch, policy))
        return measure("dispatch", subjects, n_runs, n_warmup)


def _timed(round_trip: Callable[[], object]) -> Timed:
    return calls_of(lambda _: round_trip(), None)


def _hand_over(machine: Any) -> Timed:
    def round_trip(event: Flip) -> None:
        machine.dispatch_async(event).wait()

    return calls_of(round_trip, Flip())


@contextmanager
def _native(n_lanes: int) -> Iterator[tuple[str, Callable[[], object]]]:
    with LanePool(n_lanes) as pool:
        yield "native lane pool", pool.fork_join


@contextmanager
def _workers(n_lanes: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """The caller takes a lane too, as it does in a run."""
    with WorkerPool(n_lanes - 1, n_tasks=2 * n_lanes) as pool:
        lanes = [int] * (n_lanes - 1)

        def round_trip() -> None:
            group = JoinGroup()
            pool.try_submit_batch(lanes, group)
            group.wait()

        yield "worker threads", round_trip


@contextmanager
def _in_background(call: Callable[[], object]) -> Iterator[None]:
    """Has another thread call it over and over."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            call()

    thread = threading.Thread(target=work, name="emel-bench-background")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
