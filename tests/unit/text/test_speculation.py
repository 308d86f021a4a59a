"""Guesses of one request, and the rows of a step that they get."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from emel.text.speculation import MAX_DRAFT, MIN_CHANCE, MIN_GAIN, LookupSpeculator, StepCosts, share_rows

PERIOD = [5, 6, 7, 8, 9]


def followed(ids: list[int], n_prompt: int) -> LookupSpeculator:
    """A speculator that saw the tokens behind the prompt one by one."""
    speculator = LookupSpeculator()
    for n in range(n_prompt, len(ids) + 1):
        speculator.follow(ids[:n])
    return speculator


def test_speculator_guesses_what_came_the_last_time() -> None:
    speculator = followed([1, 2, 3, 4, 1, 2], 6)
    assert speculator.draft([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]


def test_speculator_has_no_chances_where_nothing_repeats() -> None:
    assert followed(list(range(30)), 10).chances(8) == []
    assert LookupSpeculator().chances(8) == []


def test_speculator_is_surer_the_longer_the_match_and_the_more_came_true() -> None:
    short, long = followed([1, 2, 3, 1, 2], 5), followed(PERIOD * 5, 25)
    assert short.chances(1) < long.chances(1)
    surer = followed(PERIOD * 30, 25)
    assert surer.chances(MAX_DRAFT)[-1] > long.chances(MAX_DRAFT)[-1]
    assert len(surer.chances(100)) == MAX_DRAFT
    assert surer.chances(4) == sorted(surer.chances(4), reverse=True)


def test_speculator_gives_up_when_guesses_are_wrong_and_tries_again_when_they_would_have_been_right() -> None:
    random = Random(1)
    ids = PERIOD * 2
    for _ in range(60):  # what follows a pair is never what followed it before
        ids += [5, 6, random.randrange(100, 10_000)]
    speculator = followed(ids, 10)
    ids += [5, 6]
    speculator.follow(ids)
    assert speculator.chances(4) == []
    for each in [5, 6, 50, 5, 6, 50] * 20:
        ids.append(each)
        speculator.follow(ids)
    assert len(speculator.chances(4)) == 4


def test_speculator_learns_the_same_of_drafts_as_of_tokens_one_by_one() -> None:
    ids = PERIOD * 12
    one_by_one, by_steps = followed(ids, 25), LookupSpeculator()
    for n in (25, 26, 32, 33, 50, 60):
        by_steps.follow(ids[:n])
    assert by_steps.chances(MAX_DRAFT) == one_by_one.chances(MAX_DRAFT)
    assert by_steps.draft(ids, 9) == one_by_one.draft(ids, 9)


def test_chances_end_where_they_are_hopeless() -> None:
    chances = followed([1, 2, 3, 1, 2], 5).chances(MAX_DRAFT)
    assert MIN_CHANCE <= chances[-1] < 0.2
    assert len(chances) < MAX_DRAFT


# ---- costs


def measured(costs: dict[int, float]) -> StepCosts:
    table = StepCosts()
    for n, seconds in costs.items():
        table.add(n, seconds)
    return table


def test_costs_lie_on_a_line_between_what_was_measured() -> None:
    costs = measured({1: 1.0, 5: 2.0})
    assert costs.table(1, 5) == pytest.approx([1.0, 1.25, 1.5, 1.75, 2.0])
    assert costs.table(3, 3) == pytest.approx([1.5])


def test_costs_of_more_rows_than_twice_the_most_measured_are_not_guessed() -> None:
    assert StepCosts().table(1, 8) == []
    assert len(measured({1: 1.0}).table(1, 32)) == 2
    assert len(measured({1: 1.0, 4: 1.5}).table(1, 32)) == 8
    assert len(measured({4: 1.0}).table(20, 32)) == 1


def test_costs_below_the_least_measured_are_lower() -> None:
    assert measured({8: 1.0}).table(1, 8) == sorted(measured({8: 1.0}).table(1, 8))
    assert measured({8: 1.0}).table(1, 1)[0] > 0


def test_a_step_that_was_held_up_hardly_counts() -> None:
    costs = measured({1: 1.0})
    costs.add(1, 1000.0)
    assert costs.table(1, 1)[0] <= 1.2
    for _ in range(8):
        costs.add(1, 1.0)
    assert costs.table(1, 1)[0] == pytest.approx(1.0, rel=0.01)


def test_costs_not_measured_for_long_are_forgotten() -> None:
    costs = measured({1: 1.0, 2: 50.0})
    for _ in range(600):
        costs.add(1, 1.0)
    assert costs.table(1, 2)[1] < 2


# ---- rows


def linear(step: float, row: float) -> StepCosts:
    return measured({n: step + n * row for n in (*range(1, 65),)})


def test_rows_that_cost_nothing_are_all_given() -> None:
    assert share_rows([[0.5] * 4, [0.2, 0.1]], 8, linear(1.0, 0.0)) == [4, 2]


def test_rows_that_cost_a_step_each_are_not_given() -> None:
    assert share_rows([[0.9] * 8], 8, linear(0.0, 1.0)) == [0]


def test_the_likeliest_guesses_get_the_rows_there_are() -> None:
    assert share_rows([[0.5, 0.3], [0.9, 0.8, 0.1], []], 3, linear(1.0, 0.0)) == [1, 2, 0]
    assert share_rows([[0.5]], 0, linear(1.0, 0.0)) == [0]


def test_no_rows_without_a_measured_step() -> None:
    assert share_rows([[0.9]], 8, StepCosts()) == [0]


def test_shares_are_the_best_of_all() -> None:
    """Against every way to share the rows."""
    random = Random(3)
    for _ in range(40):
        chances = [sorted((random.random() for _ in range(3)), reverse=True) for _ in range(2)]
        step, row = random.random(), random.random() / 2

        def rate(
            shares: tuple[int, ...] | list[int], chances: list[list[float]] = chances, s: float = step, r: float = row
        ) -> float:
            tokens = 2 + sum(sum(each[:n]) for each, n in zip(chances, shares, strict=True))
            return tokens / (s + r * (2 + sum(shares)))

        shares = share_rows(chances, 6, linear(step, row))
        best = max(rate(each) for each in product(range(4), range(4)))
        assert rate(shares) == pytest.approx(best) or (shares == [0, 0] and best <= MIN_GAIN * rate([0, 0]))


def test_first_measurement_far_from_the_guess_hardly_counts() -> None:
    """Else a step that was held up would end all guesses for as long as it is remembered."""
    costs = measured({1: 1.0, 2: 80.0})
    assert costs.table(1, 2)[1] < 2.1
