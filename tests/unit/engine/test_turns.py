from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from emel.engine.turns import Turns
from emel.errors import RequestError
from unit.engine.interrupts import interrupted_runs


def nothing() -> None:
    pass


def raising(error: BaseException) -> None:
    raise error


def is_taken(lock: Any) -> bool:
    """Whether another thread holds a reentrant lock."""
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return not free


def is_free(turns: Turns) -> bool:
    """Whether another thread gets a turn."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(turns.run, lambda: True).result(timeout=10)


def test_turn_returns_what_the_step_returns() -> None:
    turns = Turns(nothing)
    assert turns.run(lambda: 7) == 7
    assert is_free(turns)


def test_turn_goes_to_who_waits_and_not_to_who_just_had_one() -> None:
    turns, order, long_began = Turns(nothing), list[str](), threading.Event()

    def long_step() -> None:
        order.append("long")
        long_began.set()
        while not is_taken(turns._doorway) and "short" not in order:  # until the other thread stands in it
            pass

    def run_long() -> None:
        for _ in range(5):
            turns.run(long_step)

    thread = threading.Thread(target=run_long)
    thread.start()
    assert long_began.wait(10)
    turns.run(lambda: order.append("short"))
    thread.join()
    assert order == ["long", "short", "long", "long", "long", "long"]


def test_turns_never_overlap() -> None:
    turns, inside, seen = Turns(nothing), list[int](), list[int]()

    def step() -> None:
        inside.append(1)
        seen.append(len(inside))
        inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(turns.run, step) for _ in range(200)]:
            each.result()
    assert seen == [1] * 200


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_step_that_raises_is_followed_by_one_repair(error: BaseException) -> None:
    log: list[str] = []
    turns = Turns(lambda: log.append("repair"))
    with pytest.raises(type(error)):
        turns.run(lambda: raising(error))
    assert log == []
    for _ in range(2):
        turns.run(lambda: log.append("step"))
    assert log == ["repair", "step", "step"]
    assert is_free(turns)


def test_repair_that_fails_is_tried_again() -> None:
    log: list[str] = []

    def repair() -> None:
        log.append("repair")
        if len(log) == 1:
            raise KeyboardInterrupt

    turns = Turns(repair)
    with pytest.raises(ValueError, match="x"):
        turns.run(lambda: raising(ValueError("x")))
    with pytest.raises(KeyboardInterrupt):
        turns.run(nothing)
    turns.run(lambda: log.append("step"))
    assert log == ["repair", "repair", "step"]


def test_turn_within_a_turn_is_refused() -> None:
    turns = Turns(nothing)
    with pytest.raises(RequestError, match="a step of this thread is still running: a signal handler cannot"):
        turns.run(lambda: turns.run(nothing))
    assert is_free(turns)


def test_soon_is_now_outside_a_step_and_after_it_inside() -> None:
    turns, log = Turns(nothing), list[str]()
    turns.soon(lambda: log.append("now"))
    assert log == ["now"]

    def step() -> None:
        turns.soon(lambda: log.append("after"))
        turns.soon(lambda: turns.soon(lambda: log.append("last")))
        log.append("step")

    turns.run(step)
    assert log == ["now", "step", "after", "last"]
    assert is_free(turns)


def test_soon_comes_after_a_step_that_raises_and_its_repair() -> None:
    log: list[str] = []
    turns = Turns(lambda: log.append("repair"))

    def step() -> None:
        turns.soon(lambda: log.append("after"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turns.run(step)
    assert log == ["repair", "after"]
    assert is_free(turns)


def test_soon_waits_for_the_step_of_another_thread() -> None:
    turns, began, log = Turns(nothing), threading.Event(), list[str]()
    may_end = threading.Event()

    def step() -> None:
        began.set()
        assert may_end.wait(10)
        log.append("step")

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(turns.run, step)
        assert began.wait(10)
        soon = pool.submit(turns.soon, lambda: log.append("soon"))
        may_end.set()
        running.result()
        soon.result()
    assert log == ["step", "soon"]


@pytest.mark.parametrize("n_lost", range(1, 12))
def test_interrupt_while_waiting_leaves_the_lock_to_its_holder(n_lost: int) -> None:
    turns, log = Turns(nothing), list[str]()

    def action() -> None:
        turns.run(lambda: log.append("step"))

    next(interrupted_runs(action, "engine/turns.py", first=n_lost))
    assert is_free(turns)
    assert turns.run(lambda: 1) == 1


def test_interrupt_anywhere_leaves_the_lock_free() -> None:
    log: list[str] = []
    turns = Turns(lambda: log.append("repair"))

    def action() -> None:
        turns.run(lambda: turns.soon(nothing))

    n_runs = 0
    for _ in interrupted_runs(action, "engine/turns.py"):
        n_runs += 1
        assert is_free(turns)
    assert n_runs >= 8
    assert turns.run(lambda: 1) == 1
