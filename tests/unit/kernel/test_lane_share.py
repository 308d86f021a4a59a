from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emel.kernel.lane_share import LEAST_PAUSE, MOST_PAUSE, MOST_WAITED, WINDOW, LaneShare


class Machine:
    """Runs of ten milliseconds, in which lanes wait for one another as it is told."""

    def __init__(self, n_lanes: int) -> None:
        self.now, self.waited = 100.0, 0
        self.share = LaneShare(n_lanes, self.clock)
        self.n_used = n_lanes
        self.n_looks = 0

    def clock(self) -> float:
        self.n_looks += 1
        return self.now

    def run(self, share_waited: float, seconds: float = 0.01) -> int:
        """A run in which each lane waits for this share of it; returns the lanes that the next one uses."""
        self.now += seconds
        self.waited += round(1e9 * seconds * share_waited * self.n_used)
        self.n_used = self.share.next(self.waited)
        return self.n_used

    def until(self, n_used: int, share_waited: float = 0.0) -> float:
        """Seconds until so many lanes are used."""
        began = self.now
        while self.n_used != n_used:
            self.run(share_waited)
            assert self.now < began + 60
        return self.now - began


def test_lanes_that_do_not_wait_stay_and_no_clock_is_read() -> None:
    machine = Machine(4)
    assert {machine.run(0.0) for _ in range(1000)} == {4}
    assert machine.n_looks == 0


def test_a_little_waiting_changes_nothing() -> None:
    machine = Machine(2)
    assert {machine.run(MOST_WAITED - 0.05) for _ in range(1000)} == {2}


def test_much_waiting_halves_the_lanes_until_there_is_one() -> None:
    machine = Machine(8)
    assert machine.until(4, 0.6) <= 2 * WINDOW
    assert machine.until(2, 0.6) <= 3 * WINDOW
    assert machine.until(1, 0.6) <= 3 * WINDOW


def test_all_lanes_are_tried_again_after_a_pause_that_grows_while_that_fails() -> None:
    machine = Machine(2)
    pauses = []
    for _ in range(7):
        machine.until(1, 0.8)
        pauses.append(machine.until(2))
    expected = [min(LEAST_PAUSE * 2**index, MOST_PAUSE) for index in range(7)]
    assert all(abs(pause - each) < 0.02 for pause, each in zip(pauses, expected, strict=True)), pauses
    for _ in range(3):  # the machine is free again, and then busy once more
        for _ in range(20):
            machine.run(0.1)
    machine.until(1, 0.8)
    assert abs(machine.until(2) - LEAST_PAUSE) < 0.02


def test_one_long_run_is_enough_to_see_it() -> None:
    machine = Machine(2)
    machine.run(0.8, seconds=1.0)
    assert machine.run(0.8, seconds=1.0) == 1


@given(st.integers(1, 256), st.lists(st.tuples(st.floats(0, 1), st.floats(1e-4, 5))))
def test_there_is_always_a_lane_and_never_one_too_many(n_lanes: int, runs: list[tuple[float, float]]) -> None:
    machine = Machine(n_lanes)
    for share_waited, seconds in runs:
        assert 1 <= machine.run(share_waited, seconds) <= n_lanes
