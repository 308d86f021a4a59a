"""Invariant: whatever else is submitted, cancelled, preempted or fails, each request ends once, as it would alone."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.text.generator import State
from emel.text.wavefront import MakeRoom, Submit
from unit.text.wave_of_fakes import FakeLane, WaveOfFakes, random_prompt

if TYPE_CHECKING:
    from emel.graph.batch import Batch


def random_lane(wave: WaveOfFakes, random: Random, *, may_fail: bool) -> FakeLane:
    prompt = random_prompt(random, wave.cache.n_ctx)
    return wave.lane(
        prompt,
        random.choice((None, 0, 1, 3, 20)),
        priority=random.choice((0, 0, 0, 1, -2)),
        reuse=random.random() < 0.8,
        fails_at=len(prompt) + random.randrange(5) if may_fail and random.random() < 0.1 else None,
    )


def submit_some(wave: WaveOfFakes, random: Random, *, may_fail: bool) -> int:
    leader = random_lane(wave, random, may_fail=may_fail)
    for shift in range(random.choice((0, 0, 0, 0, 1, 3))):
        context = leader.generator.context
        follower = wave.lane(context.ids, random.choice((None, 2)), reuse=context.reuses_prefix, shift=1 + shift)
        leader.followers.append(follower)
    wave.machine.dispatch(Submit(leader))
    return 1 + len(leader.followers)


def drive(wave: WaveOfFakes, random: Random, n_requests: int, *, may_fail: bool) -> None:
    """Random schedule: submissions, withdrawals and room made, between steps."""
    n_left = n_requests
    while n_left > 0:
        match random.randrange(8):
            case 0 | 1 | 2:
                n_left -= submit_some(wave, random, may_fail=may_fail)
            case 3 if random.random() < 0.3:
                wave.withdraw(random.choice(wave.everyone[-20:])) if wave.everyone else None
            case 4 if random.random() < 0.1:
                wave.machine.dispatch(MakeRoom(random.randrange(wave.cache.n_blocks)))
            case _:
                wave.step(random.randint(1, 4))
        wave.check()
    wave.finish()
    wave.check_over()


def random_wave(random: Random) -> WaveOfFakes:
    n_ctx = random.choice((20, 48, 64))
    n_full = -(-n_ctx // 16)
    return WaveOfFakes(
        n_lanes=random.choice((1, 2, 3, 8, 17)),
        n_ctx=n_ctx,
        n_blocks=random.choice((n_full + 1, n_full + 2, 3 * n_full, 20 * n_full)),
        n_budget=random.choice((1, 7, 16, 64)),
        n_mixed=random.choice((1, 5, 64)),
        prefix_bytes=random.choice((None, None, 0, 4096)),
        has_state=random.random() < 0.4,
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_request_gets_the_answer_it_would_get_alone(seed: int) -> None:
    random = Random(seed)
    wave = random_wave(random)
    drive(wave, random, 25, may_fail=False)
    for lane in wave.everyone:
        wave.check_answer(lane)
    assert wave.context.counters.n_failed == 0
    wave.close()


class Faults:
    """Raises now and then: at plan runs, and where blocks are allocated."""

    def __init__(self, wave: WaveOfFakes, random: Random, often: float) -> None:
        self._random, self._often = random, often
        self.n_raised = 0
        self.is_on = True
        wave.graph.fault = self.run
        self._allocate = wave.cache.prefixes.allocate
        self._pool = wave.cache.pool

    def run(self, _batch: Batch) -> None:
        self._maybe(RuntimeError("the run was refused"))

    def allocate(self, n: int) -> list[int]:
        self._maybe(MemoryError("no more"))
        return self._allocate(n)

    def _maybe(self, error: Exception) -> None:
        if self.is_on and self._random.random() < self._often:
            self.n_raised += 1
            raise error


class NthFault(Faults):
    """Raises once: at the n-th allocation or plan run."""

    def __init__(self, wave: WaveOfFakes, n: int) -> None:
        super().__init__(wave, Random(), 0.0)
        self.n_left = n

    def _maybe(self, error: Exception) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            self.n_raised += 1
            raise error


def test_every_allocation_and_every_run_may_fail() -> None:
    """The first, the second, the third ... until a schedule has no more of them."""
    for n in itertools.count(1):
        random = Random(118)  # three preemptions, two cancellations
        wave = WaveOfFakes(n_lanes=3, n_ctx=48, n_blocks=5, n_budget=16, n_mixed=5)
        faults = NthFault(wave, n)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("emel.memory.prefix.PrefixStore.allocate", lambda _, n, each=faults: each.allocate(n))
            drive(wave, random, 16, may_fail=False)
        for lane in wave.everyone:
            wave.check_answer(lane)
        assert wave.context.counters.n_failed <= 1
        counters = wave.context.counters
        wave.close()
        if not faults.n_raised:
            break
    assert n > 100
    assert (counters.n_failed, counters.n_preempted, counters.n_cancelled) == (0, 3, 2)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_when_runs_and_allocations_fail(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,500 requests each."""
    random = Random(seed)
    wave = random_wave(random)
    faults = Faults(wave, random, 0.01)
    monkeypatch.setattr("emel.memory.prefix.PrefixStore.allocate", lambda _self, n: faults.allocate(n))
    drive(wave, random, 2_500, may_fail=True)
    assert faults.n_raised > 10
    states = {lane.ends[0] for lane in wave.everyone}
    assert states == {State.STOPPED, State.LENGTH, State.CANCELLED, State.FAILED}
    for lane in wave.everyone:
        wave.check_answer(lane)
    faults.is_on = False
    last = wave.submit([1, 2, 3], 5)
    wave.finish()
    wave.check_answer(last)
    wave.close()
