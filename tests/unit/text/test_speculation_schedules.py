"""Invariant: guesses, right or wrong, change no answer, whatever else is submitted, cancelled, preempted or fails."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.graph.batch import Batch
from emel.graph.capacity import Capacity
from emel.kernel.sizes import KV_BLOCK
from emel.text.generator import State
from emel.text.speculation import StepCosts
from unit.text.test_wavefront_schedules import Faults, drive
from unit.text.wave_of_fakes import END, N_VOCAB, FakeLane, WaveOfFakes, answer, choice, mark_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.memory.prefix import StoredBlock


class Oracle:
    """Guesses right, except where it is to be wrong."""

    def __init__(self, random: Random, errors: float, shift: int) -> None:
        self._random, self._errors, self._shift = random, errors, shift

        self.guess_seconds = 0.0
        self.n_closed = 0

    def close(self) -> None:
        self.n_closed += 1

    def follow(self, ids: Sequence[int]) -> bool:
        """Knows everything already."""
        return True

    def chances(self, n: int) -> list[float]:
        return [0.9] * self._random.randint(0, max(n, 0))

    def draft(self, ids: Sequence[int], n: int) -> list[int]:
        known = list(ids)
        for _ in range(n):
            wrong = self._random.random() < self._errors
            known.append(self._random.randrange(N_VOCAB) if wrong else choice(mark_of(known), self._shift))
        return known[len(ids) :]


class GuessingWave(WaveOfFakes):
    """A wave whose lanes, most of them, have an oracle; rows cost nothing, as every step takes a tick."""

    def __init__(self, random: Random, *, errors: float = 0.2, often: float = 0.8, **sizes: Any) -> None:
        super().__init__(**sizes)
        self._random, self._errors, self._often = random, errors, often
        self.batch.close()
        old = self.batch.capacity
        capacity = Capacity(
            old.max_tokens, min(old.max_tokens, old.max_outputs + 8), old.max_sequences, self.cache.n_blocks
        )
        self.batch = self.context.batch = Batch(capacity, N_VOCAB, self.cache.binding)
        self.context.costs = StepCosts()

    def lane(self, prompt: Sequence[int], max_tokens: int | None = None, **options: Any) -> FakeLane:
        lane = super().lane(prompt, max_tokens, **options)
        if self._random.random() < self._often:
            oracle = Oracle(self._random, self._errors, options.get("shift", 0))
            lane.generator.context.speculator = oracle
        return lane

    def check_over(self) -> None:
        super().check_over()
        counters, lanes = self.context.counters, [lane.generator.context for lane in self.everyone]
        assert counters.n_draft_tokens == sum(each.n_draft_tokens for each in lanes)
        assert counters.n_accepted_tokens == sum(each.n_accepted_tokens for each in lanes) <= counters.n_draft_tokens
        assert counters.n_drafts <= counters.n_draft_tokens
        self.check_stored()

    def check_stored(self) -> None:
        """Each stored block is of tokens that were chosen, and holds what they lead to."""
        for block in self.cache.prefixes.blocks():
            stored = self.cache.prefixes.stored(block)
            assert stored is not None
            ids = tokens_of(stored)
            assert any(lane.generator.context.ids[: len(ids)] == ids for lane in self.everyone)
            numbers = self.graph._numbers[block * self.graph._per_block :][:KV_BLOCK].tolist()
            assert numbers == [mark_of(ids[: len(ids) - KV_BLOCK + at + 1]) for at in range(KV_BLOCK)]


def tokens_of(stored: StoredBlock | None) -> list[int]:
    """All tokens that lead to the end of a block."""
    return [] if stored is None else [*tokens_of(stored.parent), *memoryview(stored.ids).cast("i")]


def random_wave(random: Random) -> GuessingWave:
    n_ctx = random.choice((20, 48, 64))
    n_full = -(-n_ctx // KV_BLOCK)
    return GuessingWave(
        random,
        errors=random.choice((0.0, 0.2, 0.9)),
        often=random.choice((0.5, 1.0)),
        n_lanes=random.choice((1, 2, 3, 8, 17)),
        n_ctx=n_ctx,
        n_blocks=random.choice((n_full + 1, n_full + 2, 3 * n_full, 20 * n_full)),
        n_budget=random.choice((7, 16, 64)),
        n_mixed=random.choice((1, 5, 64)),
        prefix_bytes=random.choice((None, None, 0, 4096)),
        has_state=random.random() < 0.4,
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_request_gets_the_answer_it_would_get_without_guesses(seed: int) -> None:
    random = Random(seed)
    wave = random_wave(random)
    drive(wave, random, 25, may_fail=False)
    for lane in wave.everyone:
        wave.check_answer(lane)
    assert wave.context.counters.n_failed == 0
    wave.close()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_when_runs_with_guesses_fail(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    wave = random_wave(random)
    faults = Faults(wave, random, 0.01)
    monkeypatch.setattr("emel.memory.prefix.PrefixStore.allocate", lambda _self, n: faults.allocate(n))
    drive(wave, random, 800, may_fail=True)
    assert faults.n_raised > 3
    assert wave.context.counters.n_accepted_tokens > 0
    for lane in wave.everyone:
        wave.check_answer(lane)
    wave.close()


def lone_wave(**sizes: Any) -> GuessingWave:
    return GuessingWave(Random(5), errors=0.0, often=1.0, **{"n_budget": 16, "n_lanes": 2, **sizes})


def longest_prompt(n: int, at_least: int) -> list[int]:
    """A prompt of n tokens whose answer is long."""
    for seed in range(10_000):
        ids = Random(seed).choices(range(1, N_VOCAB), k=n)
        known = list(ids)
        while len(known) < n + at_least and (token := choice(mark_of(known))) != END:
            known.append(token)
        if len(known) == n + at_least:
            return ids
    raise AssertionError("no such prompt")


def test_right_guesses_save_steps() -> None:
    wave = lone_wave()
    lane = wave.submit(longest_prompt(4, 30), 30)
    wave.finish()
    counters = wave.context.counters
    assert lane.ends == [State.LENGTH]
    assert counters.n_accepted_tokens == counters.n_draft_tokens > 10
    assert counters.n_steps == 30 - counters.n_accepted_tokens
    wave.check_over()
    wave.close()


def test_guesses_are_made_in_steps_that_read_prompts() -> None:
    """They take what prompts leave of the budget, and the outputs that nobody needs."""
    wave = lone_wave(n_budget=32, n_mixed=3)
    lane = wave.submit(longest_prompt(4, 40), 40)
    wave.step(3)
    counters = wave.context.counters
    n_accepted, n_steps = counters.n_accepted_tokens, counters.n_steps
    reader = wave.submit(longest_prompt(24, 2), 2)
    while reader.generator.state in (State.QUEUED, State.PREFILLING) and not lane.ends:
        wave.step()
        assert wave.batch.n_tokens <= 32
    assert counters.n_steps - n_steps > 3
    assert counters.n_accepted_tokens - n_accepted > 3
    wave.finish()
    for each in (lane, reader):
        wave.check_answer(each)
    wave.check_over()
    wave.close()


class Eager(Oracle):
    """Is sure of whatever it guesses."""

    def chances(self, n: int) -> list[float]:
        return [0.9**index for index in range(1, n + 1)]


def test_guesses_go_before_a_lane_is_preempted() -> None:
    """Three blocks, and two lanes that end with their first: guesses of both do not fit behind it."""
    wave = lone_wave(n_ctx=32, n_blocks=3, n_budget=64)
    prompts = [Random(seed).choices(range(1, N_VOCAB), k=14) for seed in range(2_000)]
    first, second, *_ = [ids for ids in prompts if len(answer(ids, None, 32)) == 3]
    lanes = [wave.submit(ids) for ids in (first, second)]
    for lane in lanes:
        lane.generator.context.speculator = Eager(Random(1), 1.0, 0)
    assert wave.context.costs is not None
    wave.context.costs.add(10, 1.0)
    wave.step(2)
    assert len(wave.context.lanes) == 2
    wave.step()
    assert [lane.ends for lane in lanes] == [[State.STOPPED]] * 2
    assert wave.context.counters.n_preempted == wave.context.counters.n_draft_tokens == 0
    for lane in lanes:
        wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_run_that_fails_with_guesses_is_made_again_without() -> None:
    wave = lone_wave()
    lane = wave.submit(longest_prompt(1, 20), 20)

    def refuse(batch: Batch) -> None:
        if batch.n_tokens > 1:
            raise RuntimeError("too many rows")

    wave.graph.fault = refuse
    wave.finish()
    assert lane.ends == [State.LENGTH]
    assert wave.context.counters.n_failed_steps > 1
    assert wave.context.counters.n_draft_tokens == 0
    wave.check_answer(lane)
    wave.check_over()
    wave.close()


def test_no_guess_is_made_beyond_what_is_wanted_or_held() -> None:
    wave = lone_wave(n_ctx=20)
    ids = longest_prompt(10, 20)
    for max_tokens in (2, 5, None):
        lane = wave.submit(ids, max_tokens)
        wave.finish()
        wave.check_answer(lane)
    wave.check_over()
    assert wave.context.counters.n_accepted_tokens == wave.context.counters.n_draft_tokens > 0
    wave.close()


def test_cancelled_between_two_steps_gives_everything_back() -> None:
    wave = lone_wave()
    lane = wave.submit(longest_prompt(3, 30), 30)
    wave.step(4)
    wave.withdraw(lane)
    assert lane.ends == [State.CANCELLED]
    wave.check_answer(lane)
    wave.check_over()
    wave.close()
