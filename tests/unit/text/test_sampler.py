from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any

import pytest

from emel._native import LIBRARY, NativeError
from emel.kernel.buffers import address_of
from emel.text.sampler import Sampler, TokenLogprobs
from emel.text.sampling import SamplingError, SamplingParams


class OneRow:
    """A batch whose only output has these logits."""

    def __init__(self, *logits: float) -> None:
        self._logits = array("f", logits)
        self.argmax = [max(range(len(logits)), key=lambda index: (logits[index], -index))]

    def logits_address(self, output: int) -> int:
        assert output == 0
        return address_of(self._logits)


def draws(batch: Any, n: int = 400, **params: Any) -> list[int]:
    sampler = Sampler(SamplingParams(**({"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1} | params)), 4)
    return [sampler.choose(batch, 0, position) for position in range(n)]


ROW: Any = OneRow(0.0, 1.0, 2.0, -1.0)


def test_greedy_takes_the_likeliest_and_needs_no_seed() -> None:
    assert set(draws(ROW, temperature=0)) == {2}
    assert set(draws(ROW, temperature=1e-9, seed=5)) == {2}
    assert set(draws(OneRow(1.0, 3.0, 3.0, 0.0), temperature=0)) == {1}


def test_draws_depend_on_seed_and_position_alone() -> None:
    first = draws(ROW, seed=1)
    assert draws(ROW, seed=1) == first
    assert draws(ROW, seed=2) != first
    sampler = Sampler(SamplingParams(top_k=0, top_p=1, min_p=0, temperature=1, seed=1), 4)
    batch: Any = ROW
    assert [sampler.choose(batch, 0, position) for position in (7, 3, 7)] == [first[7], first[3], first[7]]


def test_draws_follow_the_softmax() -> None:
    counts = Counter(draws(ROW, n=4000, seed=3))
    weights = [math.exp(each) for each in (0, 1, 2, -1)]
    for token, weight in enumerate(weights):
        assert counts[token] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 2}, {1, 2}),
        ({"top_k": 0, "temperature": 50}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {2}),
        ({"top_p": 0.7}, {1, 2}),
        ({"min_p": 1.0}, {2}),
        ({"min_p": 0.2}, {1, 2}),
        ({"min_p": 0.1}, {0, 1, 2}),
    ],
)
def test_draws_stay_among_what_the_parameters_leave(params: dict[str, Any], tokens: set[int]) -> None:
    assert set(draws(ROW, seed=9, **params)) == tokens


def test_sampler_that_is_not_greedy_needs_its_seed() -> None:
    with pytest.raises(AssertionError):
        Sampler(SamplingParams(temperature=1), 4)


EVEN: Any = OneRow(0.0, 0.0, 0.0, 0.0)
OPEN = {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1, "seed": 1}


def made(n_vocab: int = 4, **arguments: Any) -> Sampler:
    given = {name: arguments.pop(name) for name in ("prompt_ids", "end_ids", "constraint") if name in arguments}
    return Sampler(SamplingParams(**(OPEN | arguments)), n_vocab, **given)


def seen(sampler: Sampler, batch: Any = EVEN, n: int = 100) -> set[int]:
    return {sampler.choose(batch, 0, position) for position in range(n)}


class Only:
    """A constraint that allows some tokens, in turn, and then is over."""

    def __init__(self, *steps: set[int] | None, as_view: bool = False) -> None:
        self.steps = list(steps)
        self.accepted: list[int] = []
        self.as_view = as_view

    @property
    def is_over(self) -> bool:
        return not self.steps

    def mask(self) -> int | memoryview | None:
        allowed = self.steps[0] if self.steps else set()
        if allowed is None:
            return None
        self.words = array("I", [sum(1 << token for token in allowed)])
        return memoryview(self.words) if self.as_view else self.words.buffer_info()[0]

    def accept(self, token: int) -> None:
        self.accepted.append(token)
        del self.steps[:1]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("as_view", [False, True])
def test_constraint_allows_and_hears_of_what_was_taken(temperature: float, as_view: bool) -> None:
    constraint = Only({1, 2}, None, {3}, as_view=as_view)
    sampler = made(constraint=constraint, temperature=temperature, end_ids={0})
    for allowed in ({1, 2}, {0, 1, 2, 3}, {3}, {0}):
        found = seen(sampler)
        assert found == (allowed if temperature else {min(allowed)})
        sampler.accept(min(allowed))
    assert constraint.accepted == [1, 0, 3, 0]


def test_constraint_that_is_over_lets_nothing_forbid_the_end() -> None:
    sampler = made(
        constraint=Only({1}), end_ids={0, 3}, min_tokens=50, ignore_eos=True, logit_bias={0: False, 3: False}
    )
    assert seen(sampler) == {1}
    sampler.accept(1)
    assert seen(sampler) == {0, 3}


def test_constraint_that_allows_nothing_fails_the_request() -> None:
    with pytest.raises(NativeError, match="every token is ruled out"):
        made(constraint=Only(set())).choose(EVEN, 0, 0)


@pytest.mark.parametrize("temperature", [0, 1])
def test_min_tokens_keeps_the_end_away_so_long(temperature: float) -> None:
    sampler = made(min_tokens=2, end_ids={0}, stop_token_ids=[1], temperature=temperature)
    for _ in range(2):
        assert seen(sampler) == ({2, 3} if temperature else {2})
        assert seen(sampler) == ({2, 3} if temperature else {2})  # choosing changes nothing
        sampler.accept(2)
    assert seen(sampler) == ({0, 1, 2, 3} if temperature else {0})


def test_ignore_eos_keeps_the_models_end_away_for_good() -> None:
    sampler = made(ignore_eos=True, end_ids={0, 2}, stop_token_ids=[1])
    for _ in range(5):
        assert seen(sampler) == {1, 3}
        sampler.accept(3)
    assert seen(made(end_ids={0, 2}), n=200) == {0, 1, 2, 3}


def test_biases_reach_greedy_choices_and_may_forbid() -> None:
    assert seen(made(temperature=0, logit_bias={3: 0.5})) == {3}
    assert seen(made(logit_bias=[[0, False], (1, -1000)])) == {2, 3}
    with pytest.raises(NativeError, match="every token is ruled out"):
        made(logit_bias=dict.fromkeys(range(4), False)).choose(EVEN, 0, 0)


@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids"])
def test_tokens_outside_the_vocabulary_are_refused(name: str) -> None:
    value: Any = {4: 1.0} if name == "logit_bias" else [4]
    with pytest.raises(SamplingError, match=rf"{name} is 4: allowed are token ids of the vocabulary, 0 to 3"):
        made(**{name: value})


@pytest.mark.parametrize("temperature", [0, 1])
def test_penalties_see_the_prompt_and_what_was_taken_as_far_as_the_window(temperature: float) -> None:
    sampler = made(presence_penalty=90, repeat_last_n=2, prompt_ids=[2, 0, 1], temperature=temperature)
    expected = [({2, 3}, 3), ({0, 2}, 0), ({1, 2}, 1)]
    for tokens, taken in expected:
        assert seen(sampler) == (tokens if temperature else {min(tokens)})
        sampler.accept(taken)
    everything = made(presence_penalty=90, repeat_last_n=-1, prompt_ids=[2, 0], temperature=temperature)
    everything.accept(1)
    assert seen(everything) == {3}
    assert seen(made(presence_penalty=90, repeat_last_n=0, prompt_ids=[0, 1, 2]), n=200) == {0, 1, 2, 3}


def test_windows_stay_right_over_a_long_answer() -> None:
    sampler = made(presence_penalty=90, repeat_last_n=3)
    taken: list[int] = []
    for position in range(2000):
        token = sampler.choose(EVEN, 0, position)
        assert token not in taken[-3:]
        taken.append(token)
        sampler.accept(token)


def test_dry_breaks_a_repetition_and_its_breakers_allow_it() -> None:
    repeating: dict[str, Any] = {"dry_multiplier": 90, "prompt_ids": [0, 1, 2, 3, 0, 1, 2]}
    assert seen(made(**repeating)) == {0, 1, 2}
    assert seen(made(**repeating, dry_breaker_ids=[[2]]), n=200) == {0, 1, 2, 3}
    assert seen(made(**repeating, samplers="k"), n=200) == {0, 1, 2, 3}


@pytest.mark.parametrize("mirostat", [1, 2])
def test_mirostat_follows_the_surprise_of_what_was_taken(mirostat: int) -> None:
    """mu starts at 2 tau and moves by eta times what the surprise was off; choosing alone moves nothing."""
    row: Any = OneRow(*(-0.1 * i for i in range(64)))
    sampler = made(64, mirostat=mirostat, mirostat_tau=2.0, mirostat_eta=0.5)
    native = sampler._native
    assert native is not None
    assert native.mu == 4.0
    for position in range(20):
        before = native.mu
        token = sampler.choose(row, 0, position)
        assert sampler.choose(row, 0, position) == token
        assert native.mu == before
        surprise = native.surprise
        sampler.accept(token)
        assert native.mu == pytest.approx(before - 0.5 * (surprise - 2.0), abs=1e-6)


def test_mirostat_takes_no_note_of_a_token_it_did_not_choose() -> None:
    sampler = made(mirostat=2)
    token = sampler.choose(EVEN, 0, 0)
    assert sampler._native is not None
    sampler.accept((token + 1) % 4)
    assert sampler._native.mu == 10.0


def test_mirostat_holds_the_surprise_it_is_asked_for() -> None:
    row: Any = OneRow(*(-0.05 * i for i in range(400)))
    surprises = []
    sampler = made(400, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.1)
    for position in range(600):
        sampler.accept(sampler.choose(row, 0, position))
        assert sampler._native is not None
        surprises.append(sampler._native.surprise)
    assert sum(surprises[200:]) / 400 == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(("logprobs", "n_top"), [(0, 0), (2, 2), (20, 4)])
def test_logprobs_are_those_of_the_softmax_before_all_steps(logprobs: int, n_top: int) -> None:
    found = made(logprobs=logprobs, top_k=1, temperature=0.1, logit_bias={0: False}).logprobs(ROW, 0, 3)
    total = math.log(sum(math.exp(each) for each in (0, 1, 2, -1)))
    assert isinstance(found, TokenLogprobs)
    assert found.token == 3
    assert found.logprob == pytest.approx(-1 - total, abs=1e-6)
    expected = [(2, 2 - total), (1, 1 - total), (0, -total), (3, -1 - total)][:n_top]
    assert [token for token, _ in found.top] == [token for token, _ in expected]
    assert [value for _, value in found.top] == pytest.approx([value for _, value in expected], abs=1e-6)


def test_logprobs_are_none_unless_asked_for_and_always_finite() -> None:
    assert made().logprobs(ROW, 0, 1) is None
    extreme: Any = OneRow(3e38, -3e38, -3e38, 3e38)
    found = made(logprobs=4).logprobs(extreme, 0, 1)
    assert found is not None
    assert [token for token, _ in found.top] == [0, 3, 1, 2]
    assert all(math.isfinite(value) for _, value in (*found.top, (1, found.logprob)))
    assert found.top[0][1] == pytest.approx(math.log(0.5), abs=1e-6)


def test_logits_that_are_not_finite_are_refused() -> None:
    broken: Any = OneRow(0.0, math.nan, 0.0, 0.0)
    for act in (lambda: made().choose(broken, 0, 0), lambda: made(logprobs=1).logprobs(broken, 0, 0)):
        with pytest.raises(NativeError, match="logits are not finite"):
            act()


def test_a_choice_allocates_nothing_natively() -> None:
    sampler = made(presence_penalty=1, dry_multiplier=1, constraint=Only(*[{0, 1}] * 200), end_ids={3}, mirostat=0)
    before = LIBRARY.emel_allocation_count()
    for position in range(100):
        sampler.accept(sampler.choose(EVEN, 0, position))
    assert LIBRARY.emel_allocation_count() == before


def test_greedy_with_nothing_to_change_reads_no_logits() -> None:
    class Argmax:
        argmax = (2,)

    sampler = made(temperature=0, presence_penalty=1, repeat_last_n=0, dry_multiplier=0, logprobs=5)
    batch: Any = Argmax()
    assert sampler.choose(batch, 0, 0) == 2
    sampler.accept(2)
    assert sampler.choose(batch, 0, 1) == 2
