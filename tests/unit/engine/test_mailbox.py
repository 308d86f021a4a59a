"""The compute thread alone: what is put in is done, in order, on one thread, until it is closed or nobody is left."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from emel.engine.mailbox import Mailbox


class Counter:
    """Makes as many steps as it was told to."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.mailbox.bind(self)
        self.n_left = self.n_steps = self.n_stops = 0
        self.threads: set[int] = set()

    def work(self) -> bool:
        self.threads.add(threading.get_ident())
        self.n_steps += 1
        self.n_left -= 1
        return self.n_left > 0

    def stop(self) -> None:
        self.n_stops += 1


def do(counter: Counter, n_steps: int = 0) -> None:
    """Has it make steps, and waits until an action put in behind them was done."""
    is_done = threading.Event()

    def add() -> None:
        counter.n_left += n_steps

    counter.mailbox.put(add)
    counter.mailbox.put(is_done.set)
    assert is_done.wait(20)


def test_thread_starts_with_the_first_action_and_makes_steps_between_them() -> None:
    counter = Counter()
    assert counter.mailbox._thread is None
    do(counter, 50)
    while counter.n_left > 0:
        pass
    assert counter.n_steps >= 50
    assert counter.threads != {threading.get_ident()}
    counter.mailbox.close()
    assert len(counter.threads) == 1
    assert counter.n_stops == 1


def test_a_thread_whose_start_was_interrupted_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[threading.Thread]()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()
            raise KeyboardInterrupt

    counter, done = Counter(), list[int]()
    counter.n_left = 10**9
    with monkeypatch.context() as patch:
        patch.setattr("emel.engine.mailbox.threading.Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            counter.mailbox.put(lambda: done.append(threading.get_ident()))
    started[0].join(20)
    assert not started[0].is_alive()
    assert (counter.n_steps, done) == (0, [])
    counter.mailbox.close()  # stops it from here: nobody else makes steps
    assert (counter.n_steps, counter.n_stops, done) == (0, 1, [threading.get_ident()])


def test_close_does_what_was_put_in_before_and_stops_once() -> None:
    counter, done = Counter(), list[int]()
    for index in range(100):
        counter.mailbox.put(lambda index=index: done.append(index))  # type: ignore[misc]
    counter.mailbox.close()
    counter.mailbox.close()
    assert done == [*range(100)]
    assert counter.n_stops == 1
    counter.mailbox.put(lambda: done.append(100))  # done by whoever put it in
    assert done[-1] == 100


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1)], ids=repr)
def test_action_that_raises_ends_the_thread_as_close_does(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: seen.append(told.exc_type))
    counter, done = Counter(), list[int]()

    def fail() -> None:
        counter.mailbox.put(lambda: done.append(1))
        raise error

    counter.mailbox.put(fail)
    thread = counter.mailbox._thread
    assert thread is not None
    thread.join(20)
    assert seen == [type(error)]
    assert (counter.n_stops, counter.mailbox.is_closed, done) == (1, True, [1])
    counter.mailbox.put(lambda: done.append(2))
    assert done == [1, 2]
    counter.mailbox.close()
    assert counter.n_stops == 1


def test_mailbox_that_was_never_used_stops_without_a_thread() -> None:
    counter = Counter()
    counter.mailbox.close()
    assert counter.n_stops == 1
    assert counter.mailbox._thread is None


def test_mailbox_closed_by_several_threads_stops_once() -> None:
    """While others put something in, and whether it was used before or not."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            counter, done = Counter(), list[int]()
            begin = threading.Barrier(6)

            def close(mailbox: Mailbox = counter.mailbox, begin: threading.Barrier = begin) -> None:
                begin.wait()
                mailbox.close()
                assert mailbox.has_stopped

            def put(
                mailbox: Mailbox = counter.mailbox, begin: threading.Barrier = begin, done: list[int] = done
            ) -> None:
                begin.wait()
                mailbox.put(lambda: done.append(1))

            with ThreadPoolExecutor(6) as pool:
                running = [pool.submit(each) for each in (close, put, close, put, close, put)]
                for each in running:
                    each.result(20)
            assert counter.n_stops == 1
            assert done == [1, 1, 1]
    finally:
        sys.setswitchinterval(interval)


def test_thread_ends_when_nobody_holds_its_worker() -> None:
    counter = Counter()
    do(counter, 1)
    thread = counter.mailbox._thread
    assert thread is not None
    del counter
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_close_from_the_thread_itself_does_not_wait_for_it() -> None:
    counter, was_own = Counter(), list[bool]()

    def close() -> None:
        was_own.append(counter.mailbox.is_own_thread)
        counter.mailbox.close()

    counter.mailbox.put(close)
    thread = counter.mailbox._thread
    assert thread is not None
    thread.join(20)
    assert was_own == [True]
    assert counter.n_stops == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            counter.mailbox.put(lambda: None)
    do(counter)
    counter.mailbox.close()


ENDLESS = """
from emel.engine.mailbox import Mailbox
import sys

class Endless:
    def work(self):
        return True
    def stop(self):
        sys.stdout.write("stopped")

worker, mailbox = Endless(), Mailbox()
mailbox.bind(worker)
mailbox.put(lambda: None)
"""


def test_interpreter_ends_while_steps_are_made() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDLESS], check=False, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "stopped", "")
