from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import RefusedTrap, Task
from emel.sm.policies import answer_inline, completed, run_in_order
from emel.sm.traps import Trap, checkpoint, on_lanes, run_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from emel.sm.policies import Run


@dataclass(frozen=True, slots=True)
class Unknown(Trap):
    """No policy knows this one."""


def fail(error: BaseException) -> Any:
    raise error


def completed_inline(run: Run) -> Task:
    return completed(run, answer_inline)


def test_inline_policy_completes_a_run_on_the_callers_stack() -> None:
    log: list[object] = []

    def run() -> Generator[Trap, Any, bool]:
        yield from checkpoint()
        log.append((yield from run_lanes([lambda: 1, lambda: 2])))
        return True

    task = completed_inline(run())
    assert task.done
    assert task.result() is True
    assert log == [[1, 2]]


def test_inline_policy_keeps_a_false_result() -> None:
    def run() -> Generator[Trap, Any, bool]:
        yield from checkpoint()
        return False

    assert completed_inline(run()).result() is False


def test_inline_policy_puts_an_exception_into_the_task() -> None:
    def run() -> Generator[Trap, Any, bool]:
        yield from checkpoint()
        raise OSError("no disk")

    task = completed_inline(run())
    assert task.done
    with pytest.raises(OSError, match="no disk"):
        task.result()


def test_inline_policy_lets_an_interrupt_through() -> None:
    def run() -> Generator[Trap, Any, bool]:
        yield from checkpoint()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        completed_inline(run())


@pytest.mark.parametrize(
    ("trap", "fault"),
    [
        (Unknown(), "a policy that runs on the caller's stack cannot answer Unknown: the machine needs another policy"),
        (3, r"an effect yielded 3: effects yield only the traps of emel\.sm\.traps"),
    ],
)
def test_inline_policy_refuses_what_it_cannot_answer(trap: Any, fault: str) -> None:
    cleaned_up: list[str] = []

    def run() -> Generator[Any, Any, bool]:
        try:
            yield trap
        finally:
            cleaned_up.append("yes")
        return True

    with pytest.raises(RefusedTrap, match=fault):
        completed_inline(run()).result()
    assert cleaned_up == ["yes"]


def test_effect_may_handle_a_refused_trap_and_go_on() -> None:
    def run() -> Generator[Any, Any, bool]:
        try:
            yield Unknown()
        except RefusedTrap:
            return (yield from run_lanes([lambda: True]))[0]
        return False

    assert completed_inline(run()).result() is True


def test_lanes_all_end_before_the_first_error_is_raised() -> None:
    log: list[int] = []
    calls: list[Callable[[], object]] = [
        lambda: log.append(0),
        lambda: fail(ValueError("first")),
        lambda: log.append(2),
        lambda: fail(OSError("second")),
        lambda: log.append(4),
    ]
    with pytest.raises(ValueError, match="first"):
        run_in_order(calls)
    assert log == [0, 2, 4]


def test_lane_error_is_thrown_into_the_effect_that_waits() -> None:
    def run() -> Generator[Trap, Any, bool]:
        with pytest.raises(ValueError, match="lane"):
            yield from run_lanes([lambda: fail(ValueError("lane"))])
        return True

    assert completed_inline(run()).result() is True


def test_inline_policy_has_no_lanes() -> None:
    def run() -> Generator[Any, Any, bool]:
        yield from on_lanes(lambda lanes: lanes.n_lanes)
        return True

    with pytest.raises(RefusedTrap, match="cannot answer OnLanes"):
        completed_inline(run()).result()


def test_no_lanes_give_no_results() -> None:
    assert run_in_order([]) == []
