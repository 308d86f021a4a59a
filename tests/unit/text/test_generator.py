"""The generator machine over a real cache, with letters as tokens and a graph that is a hash (wave_of_fakes)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.batch import Outputs
from emel.sm import UnexpectedEvent
from emel.text.generator import Admit, Cancel, Computed, Fail, Join, Preempt, State, not_finite
from unit.text.wave_of_fakes import END, FakeLane, WaveOfFakes, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


@pytest.fixture
def wave() -> Iterator[WaveOfFakes]:
    wave = WaveOfFakes(n_budget=64)
    yield wave
    wave.close()


def compute(wave: WaveOfFakes, lane: FakeLane, n: int) -> None:
    """What a step does for one lane, up to the dispatch."""
    context, batch = lane.generator.context, wave.batch
    assert context.sequence is not None
    batch.clear()
    (first,) = wave.cache.reserve_all([(context.sequence, n)])
    is_last = first + n == len(context.ids)
    context.n_step = n
    context.output = batch.add(
        context.ids[first : first + n],
        first,
        context.sequence,
        outputs=Outputs.LAST if is_last else Outputs.NONE,
    )
    wave.graph.compute(batch)


def run(wave: WaveOfFakes, lane: FakeLane, chunk: int = 7) -> None:
    """Admits it and computes to the end."""
    machine = lane.generator
    machine.dispatch(Admit())
    while not machine.is_terminal:
        compute(wave, lane, min(chunk, len(machine.context.ids) - machine.context.n_computed))
        machine.dispatch(Computed())


def test_request_goes_from_its_prompt_to_its_limit(wave: WaveOfFakes) -> None:
    lane = wave.lane(PROMPT, 5)
    machine, states = lane.generator, []
    machine.dispatch(Admit())
    while not machine.is_terminal:
        states.append(machine.state)
        compute(wave, lane, min(8, len(machine.context.ids) - machine.context.n_computed))
        machine.dispatch(Computed())
    expected = answer(PROMPT, 5, 64)
    assert lane.tokens == expected
    assert states == [State.PREFILLING] * 3 + [State.DECODING] * (len(expected) - 1)
    assert machine.state is (State.STOPPED if expected[-1] == END else State.LENGTH)
    assert machine.context.sequence is None
    assert wave.cache.free_blocks() == wave.cache.n_blocks


@pytest.mark.parametrize("chunk", [1, 2, 16, 20])
def test_answer_is_the_same_for_every_chunk(wave: WaveOfFakes, chunk: int) -> None:
    lane = wave.lane(PROMPT, 9, reuse=False)
    run(wave, lane, chunk)
    assert lane.tokens == answer(PROMPT, 9, 64)


def test_prefix_of_another_is_not_computed_again(wave: WaveOfFakes) -> None:
    run(wave, wave.lane(PROMPT, 0))
    lane = wave.lane(PROMPT, 3)
    n_runs = wave.graph.n_runs
    run(wave, lane, 64)
    assert lane.generator.context.n_cached == 16
    assert wave.graph.n_runs - n_runs == 3
    assert lane.tokens == answer(PROMPT, 3, 64)


def test_preempted_request_goes_on_where_it_was(wave: WaveOfFakes) -> None:
    lane = wave.lane(PROMPT, 6, reuse=False)
    machine, context = lane.generator, lane.generator.context
    machine.dispatch(Admit())
    compute(wave, lane, 20)
    machine.dispatch(Computed())
    assert machine.state is State.DECODING
    machine.dispatch(Preempt())
    assert (machine.state, context.sequence, context.n_computed) == (State.QUEUED, None, 0)
    assert wave.cache.free_blocks() == wave.cache.n_blocks
    run(wave, lane)
    assert lane.tokens == answer(PROMPT, 6, 64)
    assert (context.n_admissions, context.n_cached) == (2, 0)


def test_follower_takes_the_leaders_logits(wave: WaveOfFakes) -> None:
    leader, follower = wave.lane(PROMPT, 4), wave.lane(PROMPT, 4, shift=3)
    leader.generator.dispatch(Admit())
    compute(wave, leader, 20)
    follower.generator.dispatch(Join(leader.generator.context))
    assert follower.tokens == answer(PROMPT, 1, 64, 3)
    assert follower.generator.state is State.DECODING
    leader.generator.dispatch(Computed())
    while not follower.generator.is_terminal:
        compute(wave, follower, 1)
        follower.generator.dispatch(Computed())
    assert follower.tokens == answer(PROMPT, 4, 64, 3)


@pytest.mark.parametrize("state", [State.QUEUED, State.PREFILLING, State.DECODING])
@pytest.mark.parametrize("event", [Cancel(), Fail(ValueError("broken"))])
def test_request_ends_from_every_state(wave: WaveOfFakes, state: State, event: object) -> None:
    lane = wave.lane(PROMPT)
    machine = lane.generator
    if state is not State.QUEUED:
        machine.dispatch(Admit())
    if state is State.DECODING:
        compute(wave, lane, 20)
        machine.dispatch(Computed())
    assert machine.state is state
    machine.dispatch(event)
    assert machine.state is (State.CANCELLED if isinstance(event, Cancel) else State.FAILED)
    assert machine.context.sequence is None
    assert (machine.context.error is not None) == isinstance(event, Fail)
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(event)


def test_sampler_that_raises_can_be_failed(wave: WaveOfFakes) -> None:
    lane = wave.lane(PROMPT, fails_at=len(PROMPT))
    lane.generator.dispatch(Admit())
    compute(wave, lane, 20)
    with pytest.raises(RuntimeError, match="no token is left") as caught:
        lane.generator.dispatch(Computed())
    assert lane.generator.state is State.COMPUTED
    lane.generator.dispatch(Fail(caught.value))
    assert lane.generator.state is State.FAILED
    assert wave.cache.free_blocks() == wave.cache.n_blocks


def test_stop_string_ends_it(wave: WaveOfFakes) -> None:
    text = "".join(chr(ord("A") + token) for token in answer(PROMPT, 6, 64))
    lane = wave.lane(PROMPT, stops=[text[2:4]])
    run(wave, lane)
    assert lane.generator.state is State.STOPPED
    assert "".join(lane.generator.context.text) == text[:2]
    assert lane.generator.context.stop == text[2:4]


def test_logits_that_are_not_finite_name_the_first_layer_of_their_tokens(wave: WaveOfFakes) -> None:
    lane = wave.lane(PROMPT)
    lane.generator.dispatch(Admit())
    compute(wave, lane, 20)
    wave.batch.argmax[0] = -1
    for token in range(20):
        wave.batch.bad_layer[token] = 5 if token == 19 else 7 if token > 10 else -1
    lane.generator.dispatch(Computed())
    assert lane.generator.state is State.FAILED
    assert "in layer 5; the model file is likely damaged" in str(lane.generator.context.error)
    for token in range(20):
        wave.batch.bad_layer[token] = -1
    assert "the output matrix made them so" in str(not_finite(wave.batch, 0, 20))
