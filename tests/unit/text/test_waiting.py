from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.waiting import MAX_PRIORITY, PRIORITY_LEAD, WaitingLine, rank_of


@dataclass(frozen=True)
class Waiter:
    rank: int


def test_first_come_is_first_served() -> None:
    line: WaitingLine[Waiter] = WaitingLine()
    for arrival in (3, 1, 2):
        line.add(Waiter(rank_of(arrival, 0)))
    assert [each.rank for each in line] == [rank_of(arrival, 0) for arrival in (1, 2, 3)]
    assert line.first().rank == rank_of(1, 0)
    assert line.take().rank == rank_of(1, 0)
    assert len(line) == 2


def test_leaving_takes_nobody_elses_place() -> None:
    line: WaitingLine[Waiter] = WaitingLine()
    waiters = [Waiter(rank_of(arrival, 0)) for arrival in range(5)]
    for waiter in waiters:
        line.add(waiter)
    line.remove(waiters[2])
    assert [*line] == [*waiters[:2], *waiters[3:]]
    with pytest.raises(ValueError, match="not in list"):
        line.remove(waiters[2])
    line.clear()
    assert len(line) == 0
    with pytest.raises(IndexError):
        line.first()


@given(st.integers(0, 2**40), st.integers(0, 2**20), st.integers(-MAX_PRIORITY, MAX_PRIORITY))
def test_nobody_is_overtaken_for_ever(arrival: int, later: int, priority: int) -> None:
    """Whoever comes later than the highest priority's lead stays behind."""
    mine = rank_of(arrival, priority)
    assert rank_of(arrival + PRIORITY_LEAD * (MAX_PRIORITY - priority) + 1 + later, MAX_PRIORITY) > mine


@given(st.integers(0, 2**40), st.integers(1, PRIORITY_LEAD - 1))
def test_one_more_of_priority_overtakes_those_just_before(arrival: int, behind: int) -> None:
    assert rank_of(arrival + behind, 1) < rank_of(arrival, 0)
    assert rank_of(arrival + PRIORITY_LEAD + behind, 1) > rank_of(arrival, 0)
