from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from emel.text.prompt_share import LEAST, STRETCH, PromptShare

N_MOST, N_LANES = 128, 8


@dataclass(frozen=True)
class Machine:
    """Milliseconds of a step, of each row that decides, of each token of a prompt."""

    step: float
    row: float
    token: float

    def seconds(self, n_rows: int, n_tokens: int = 0) -> float:
        return (self.step + n_rows * self.row + n_tokens * self.token) / 1e3


SMALL = Machine(2.5, 0.55, 0.2)
MANY_CORES = Machine(2.0, 0.1, 0.02)
SLOW = Machine(10.0, 9.0, 8.0)


def learn(
    share: PromptShare,
    machine: Machine,
    n_steps: int = 2000,
    *,
    n_lanes: int = N_LANES,
    reads: float = 0.1,
    noise: float = 0.0,
) -> list[float]:
    """The times of steps that read, in those of a step in which all decide; one step in 1 / reads does."""
    random, stretched = Random(n_steps), []
    for _ in range(n_steps):
        is_reading = random.random() < reads
        n_rows = n_lanes - is_reading
        n_tokens = share.tokens(n_rows, n_lanes) if is_reading else 0
        seconds = machine.seconds(n_rows, n_tokens)
        if is_reading:
            stretched.append(seconds / machine.seconds(n_lanes))
        held_up = 20 if random.random() < noise / 3 else 1
        share.add(n_rows, n_tokens, held_up * seconds * random.uniform(1 - noise, 1 + noise))
    return stretched


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("reads", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("n_lanes", [2, 8])
def test_share_makes_a_step_twice_as_long(reads: float, noise: float, n_lanes: int) -> None:
    share = PromptShare(N_MOST)
    stretched = learn(share, SMALL, 5000, n_lanes=n_lanes, reads=reads, noise=noise)[50:]
    assert max(stretched) < (1.5 if noise else 1.1) * STRETCH
    assert sum(stretched) / len(stretched) > 0.75 * STRETCH


def test_share_is_the_most_where_tokens_of_prompts_cost_next_to_nothing() -> None:
    share = PromptShare(N_MOST)
    learn(share, MANY_CORES)
    assert N_MOST - 8 < share.tokens(N_LANES - 1, N_LANES) <= N_MOST


@pytest.mark.parametrize(("n_lanes", "n_tokens"), [(2, 7), (3, 6), (5, 4), (6, 11), (8, 9), (9, 8)])
def test_share_is_never_less_than_the_least_which_fills_a_tile(n_lanes: int, n_tokens: int) -> None:
    share = PromptShare(N_MOST)
    learn(share, SLOW, n_lanes=2)
    assert share.tokens(n_lanes - 1, n_lanes) == n_tokens >= LEAST
    assert (n_lanes - 1 + n_tokens) % 8 == 0


def test_share_is_at_most_what_it_may_be() -> None:
    assert PromptShare(5).tokens(1, 2) == 5
    assert PromptShare(N_MOST, N_MOST).tokens(1, 2) == N_MOST
    assert PromptShare(N_MOST).tokens(100, 101) <= N_MOST


def test_share_before_any_step_was_seen_is_small() -> None:
    share = PromptShare(N_MOST)
    assert LEAST < share.tokens(1, 2) < share.tokens(7, 8) < 32
    share.add(1, 0, 0.0)  # a clock too coarse to see a step
    assert LEAST < share.tokens(1, 2) < share.tokens(7, 8) < 32


def test_share_does_not_dwindle_when_every_step_reads_and_steps_grow_longer() -> None:
    share = PromptShare(N_MOST)
    learn(share, SMALL)
    before = share.tokens(N_LANES - 1, N_LANES)
    for factor in (1.5, 2.0, 3.0, 4.0):  # contexts grow, and no step without prompts tells of it
        longer = Machine(factor * SMALL.step, factor * SMALL.row, SMALL.token)
        stretched = learn(share, longer, 1000, reads=1.0)
        assert max(stretched) < 1.1 * STRETCH
    assert share.tokens(N_LANES - 1, N_LANES) > 0.6 * before


def test_one_step_that_was_held_up_changes_little() -> None:
    share = PromptShare(N_MOST)
    learn(share, SMALL)
    before = share.tokens(N_LANES - 1, N_LANES)
    share.add(N_LANES - 1, before, 10.0)
    assert share.tokens(N_LANES - 1, N_LANES) in (before - 8, before)
    share.add(N_LANES, 0, 10.0)
    assert share.tokens(N_LANES - 1, N_LANES) in (before - 8, before, before + 8)


def test_guesses_get_what_prompts_leave() -> None:
    share = PromptShare(N_MOST)
    for _ in range(20):  # of many rows and of few: what a row takes shows
        learn(share, SMALL, 50, n_lanes=2)
        learn(share, SMALL, 50)
    n_tokens = share.tokens(N_LANES - 1, N_LANES)
    assert share.guesses(N_LANES - 1, N_LANES, n_tokens + 8) == 0
    n_guesses = share.guesses(N_LANES - 1, N_LANES, n_tokens // 2)
    seconds = SMALL.seconds(N_LANES - 1 + n_guesses, n_tokens // 2)
    assert 1.6 < seconds / SMALL.seconds(N_LANES) < 2.4
