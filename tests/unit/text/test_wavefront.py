"""Single rules of the wave; what holds for random schedules is in test_wavefront_schedules.py."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel.text.generator import State
from emel.text.wavefront import MakeRoom, Shut, Submit
from emel.text.wavefront import State as WaveState
from unit.text.wave_of_fakes import KEY, N_VOCAB, WaveOfFakes

if TYPE_CHECKING:
    from emel.graph.batch import Batch


def prompt(n: int, first: int = 1) -> list[int]:
    """Tokens that begin like no other prompt's."""
    return [first, *(1 + token % (N_VOCAB - 1) for token in range(first, first + n - 1))]


def test_long_prompt_is_read_beside_those_that_decode() -> None:
    wave = WaveOfFakes(n_budget=16, n_mixed=5)
    decoder = wave.submit(prompt(4), 30)
    wave.step()
    reader = wave.submit(prompt(40, 7), 2)
    read = []
    for _ in range(8):
        n = len(decoder.tokens)
        wave.step()
        read.append(reader.generator.context.n_computed)
        assert decoder.ends or len(decoder.tokens) == n + 1
    assert read[:3] == [5, 10, 15] or decoder.ends
    wave.finish()
    wave.check_answer(reader)
    wave.close()


def test_prompts_share_what_may_be_read_beside_those_that_decode() -> None:
    wave = WaveOfFakes(n_budget=16, n_mixed=5)
    decoder = wave.submit(prompt(4), 30)
    wave.step()
    readers = [wave.submit(prompt(n, n), 2) for n in (7, 9)]
    wave.step()
    assert [lane.generator.context.n_computed for lane in readers] == [5, 0]
    wave.step()
    assert [lane.generator.context.n_computed for lane in readers] == [7, 3]
    assert not decoder.ends
    wave.finish()
    for lane in (decoder, *readers):
        wave.check_answer(lane)
    wave.close()


def test_prompts_get_the_whole_budget_when_nobody_decodes() -> None:
    wave = WaveOfFakes(n_budget=16, n_mixed=5)
    readers = [wave.submit(prompt(n, n), 2) for n in (7, 20)]
    wave.step()
    assert [lane.generator.context.n_computed for lane in readers] == [7, 9]
    wave.finish()
    for lane in readers:
        wave.check_answer(lane)
    wave.close()


def test_requests_of_another_key_wait_until_the_wave_is_theirs() -> None:
    wave = WaveOfFakes()
    first = wave.submit(prompt(3), 5)
    other = wave.submit(prompt(3, 9), 1, key=replace(KEY, outputs="all"))
    third = wave.submit(prompt(3, 17), 1)
    wave.step()
    assert wave.context.lanes == [first]
    while not first.ends:
        wave.step()
    wave.step()
    assert other.ends
    assert not third.ends  # it came later, so it was not admitted beside the first either
    wave.finish()
    wave.check_over()
    wave.close()


def test_last_that_came_is_preempted_and_comes_back_first() -> None:
    wave = WaveOfFakes(n_ctx=64, n_blocks=5, n_budget=64, prefix_bytes=0)
    lanes = [wave.submit(prompt(20, first), 30) for first in (1, 9)]
    late = wave.submit(prompt(2, 30), 2)
    wave.step()
    assert wave.context.lanes == lanes
    preempted_at = None
    for step in range(60):
        wave.step()
        if wave.context.counters.n_preempted and preempted_at is None:
            preempted_at = step
            assert lanes[0] in wave.context.lanes or lanes[0].ends
            assert wave.context.waiting.first() is lanes[1] or lanes[1].ends
    wave.finish()
    assert preempted_at is not None or all(len(lane.tokens) < 12 for lane in lanes)
    for lane in (*lanes, late):
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_request_that_does_not_fit_the_memory_alone_fails() -> None:
    wave = WaveOfFakes(n_ctx=64, n_blocks=2, n_budget=64)
    lane, other = wave.submit(prompt(40), 3), wave.submit(prompt(10, 5), 1)
    wave.finish()
    assert lane.ends == [State.FAILED]
    assert "40 tokens do not fit the memory of 32" in str(lane.generator.context.error)
    wave.check_answer(other)
    assert other.ends != [State.FAILED]
    wave.check_over()
    wave.close()


def test_lowest_lane_that_failed_is_told() -> None:
    wave = WaveOfFakes(n_budget=64)
    lanes = [wave.submit(prompt(4, 1 + index), 9, fails_at=4 if index in (1, 2) else None) for index in range(4)]
    wave.step()
    assert wave.context.failed is lanes[1]
    assert [lane.ends for lane in lanes[1:3]] == [[State.FAILED]] * 2
    wave.finish()
    for lane in lanes:
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_culprit_of_a_failed_run_is_found_by_running_alone() -> None:
    wave = WaveOfFakes(n_budget=64)

    def fault(batch: Batch) -> None:
        if 33 in list(batch.tokens[: batch.n_tokens]):
            raise ValueError("33 is refused")

    wave.graph.fault = fault
    lanes = [wave.submit([first, 2, first], 1) for first in (5, 33, 7)]
    wave.step()
    assert len(wave.context.suspects) == 3
    assert not any(lane.ends for lane in lanes)
    wave.finish()
    assert lanes[1].ends == [State.FAILED]
    assert str(lanes[1].generator.context.error) == "33 is refused"
    assert wave.context.counters.n_failed_steps == 2
    for lane in lanes:
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_room_is_made_by_those_that_came_last() -> None:
    wave = WaveOfFakes(n_ctx=32, n_blocks=8, n_budget=64, prefix_bytes=0)
    lanes = [wave.submit(prompt(17, first), 9) for first in (1, 5, 9)]
    wave.step()
    assert wave.cache.free_blocks() == 2
    wave.machine.dispatch(MakeRoom(5))
    assert wave.context.lanes == lanes[:1]
    wave.machine.dispatch(MakeRoom(99))
    assert wave.context.lanes == []
    wave.finish()
    for lane in lanes:
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_shut_wave_fails_all_and_takes_nothing() -> None:
    wave = WaveOfFakes(n_lanes=1)
    lanes = [wave.submit(prompt(4), None), wave.submit(prompt(4), None)]
    follower = wave.lane(prompt(4))
    lanes[1].followers.append(follower)
    wave.context.counters.n_submitted += 1
    wave.step()
    wave.machine.dispatch(Shut(ValueError("closed")))
    assert wave.machine.state is WaveState.SHUT
    assert [lane.ends for lane in (*lanes, follower)] == [[State.FAILED]] * 3
    wave.check_over()
    wave.close()


def test_withdrawn_leader_leaves_its_followers_to_go_on() -> None:
    wave = WaveOfFakes(n_budget=4)
    leader = wave.lane(prompt(20))
    followers = [wave.lane(prompt(20), 3, shift=1 + index) for index in range(2)]
    leader.followers.extend(followers)
    wave.machine.dispatch(Submit(leader))
    wave.step()
    wave.withdraw(leader)
    wave.withdraw(leader)  # harmless
    assert leader.ends == [State.CANCELLED]
    wave.finish()
    for lane in followers:
        assert lane.ends[0] in (State.LENGTH, State.STOPPED)
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_step_of_an_idle_wave_does_nothing() -> None:
    wave = WaveOfFakes()
    wave.step(3)
    assert wave.machine.state is WaveState.READY
    assert wave.context.counters.n_steps == 0
    wave.close()


@pytest.mark.parametrize("n_lanes", [1, 8])
def test_steady_step_leaves_no_object_behind(n_lanes: int) -> None:
    """But for the answers: their ids are small integers, and their texts letters, which exist already."""
    wave = WaveOfFakes(n_lanes=n_lanes, n_ctx=512, n_budget=64)
    lanes = [wave.submit(prompt(4, 1 + index), None) for index in range(n_lanes)]

    def step() -> None:
        for lane in lanes:
            lane.generator.context.ids[-1:] = [7]  # never the end
        wave.step()

    wave.graph.compute = lambda batch: [batch.argmax.__setitem__(i, 7) for i in range(batch.n_outputs)]  # type: ignore
    for _ in range(40):
        step()
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for _ in range(64):
            step()
        grown = sys.getallocatedblocks() - before
    finally:
        gc.enable()
    assert all(not lane.ends for lane in lanes)
    assert grown <= 40 * n_lanes  # four blocks each, and what is stored of them; steps would leave 64
    wave.close()
