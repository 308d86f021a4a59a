"""The sampling chain against a plain model of it, and the draw against its distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel._native import LIBRARY, abi, check
from native.small_plan import aligned_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEAR = 1e-6  # of a cut, by weights in float32: the model may keep one candidate more or less there


@dataclass(frozen=True)
class Chain:
    """Parameters of emel_sampling."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1

    def parameters(self) -> abi.Sampling:
        """The chain in the usual order."""
        steps = (abi.Step.TOP_K, abi.Step.TOP_P, abi.Step.MIN_P, abi.Step.TEMPERATURE)
        values = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        parameters = abi.Sampling(**values, seed=self.seed, typical_p=1, repeat_penalty=1, n_steps=len(steps))
        parameters.steps[: len(steps)] = steps
        return parameters

    def draw(self, logits: NDArray[np.float32], positions: range) -> list[int]:
        """The tokens drawn at these positions."""
        scratch, choice, tokens = aligned_bytes(LIBRARY.emel_choose_scratch(len(logits), 0)), abi.Choice(), []
        parameters = self.parameters()
        arguments = (logits.ctypes.data, len(logits), parameters, scratch.ctypes.data, scratch.nbytes, choice)
        for position in positions:
            parameters.position = position
            check(LIBRARY.emel_choose(*arguments))
            tokens.append(choice.token)
        return tokens

    def kept(self, logits: NDArray[np.float32], slack: float = 0.0) -> set[int]:
        """The ids that survive the cuts, taken a little looser (slack > 0) or tighter."""
        order = np.lexsort((np.arange(len(logits)), -logits))[: self.top_k or len(logits)]
        weights = np.exp(logits[order].astype(np.float64) - float(logits[order[0]]))
        if self.top_p < 1:
            before = np.concatenate([[0.0], np.cumsum(weights)[:-1]]) / weights.sum()
            n = max(1, int((before < np.float32(self.top_p) + slack).sum()))
            order, weights = order[:n], weights[:n]
        if self.min_p > 0:
            order = order[weights >= np.float32(self.min_p) - slack]
        return {int(each) for each in order}


def random_logits(n: int, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(n) * 2).astype(np.float32)


def probabilities(logits: NDArray[np.float32], temperature: float, kept: set[int]) -> NDArray[np.float64]:
    """(n_vocab,) softmax over the kept ids."""
    scaled = np.full(len(logits), -np.inf)
    ids = sorted(kept)
    scaled[ids] = logits[ids].astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


@given(
    seed=st.integers(0, 1000),
    n=st.integers(1, 40),
    top_k=st.integers(0, 50),
    top_p=st.floats(0, 1, width=32),
    min_p=st.floats(0, 1, width=32),
)
@settings(max_examples=150, deadline=None)
def test_draws_are_what_the_cuts_leave(seed: int, n: int, top_k: int, top_p: float, min_p: float) -> None:
    """At a high temperature all that is kept is drawn before long, and nothing else ever is."""
    logits = random_logits(n, seed)
    chain = Chain(temperature=1e6, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    drawn = set(chain.draw(logits, range(25 * n + 100)))
    assert drawn <= chain.kept(logits, NEAR)
    assert drawn >= chain.kept(logits, -NEAR)


@pytest.mark.parametrize(
    "chain",
    [
        Chain(),
        Chain(temperature=0.5, seed=2),
        Chain(temperature=3.0, seed=3),
        Chain(top_k=5, seed=4),
        Chain(temperature=0.8, top_p=0.8, seed=5),
        Chain(temperature=2.0, min_p=0.1, seed=6),
        Chain(temperature=1.3, top_k=12, top_p=0.95, min_p=0.02, seed=2**64 - 1),
    ],
)
def test_frequencies_are_those_of_softmax(chain: Chain) -> None:
    """Cuts at temperature 1, then the draw at the temperature asked for: chi-square, far beyond its 1 in 10^6 tail."""
    logits, n_draws = random_logits(24, chain.seed % 1000), 20_000
    expected = probabilities(logits, chain.temperature, chain.kept(logits)) * n_draws
    counted = np.bincount(chain.draw(logits, range(n_draws)), minlength=24)
    assert (counted[expected == 0] == 0).all()
    often = expected >= 5
    statistic = ((counted - expected)[often] ** 2 / expected[often]).sum()
    freedom = often.sum() - 1
    assert statistic < freedom + 5 * np.sqrt(2 * max(freedom, 1)) + 10


def test_draws_depend_on_seed_and_position_alone() -> None:
    logits = random_logits(50)
    chain = Chain(seed=7)
    straight = chain.draw(logits, range(200))
    assert chain.draw(logits, range(199, -1, -1)) == straight[::-1]
    assert [chain.draw(logits, range(at, at + 1))[0] for at in range(200)] == straight
    others = [Chain(seed=seed).draw(logits, range(200)) for seed in (0, 8, 2**32 + 7, 2**63 + 7)]
    assert all(sum(a == b for a, b in zip(straight, other, strict=True)) < 60 for other in others)
    far = chain.draw(logits, range(2**32, 2**32 + 200))
    assert sum(a == b for a, b in zip(straight, far, strict=True)) < 60


def test_draws_of_neighbouring_seeds_and_positions_are_not_alike() -> None:
    """Two equal logits: a fair coin, over positions, over seeds, and from each draw to the next."""
    coin = np.zeros(2, np.float32)
    flips = np.array([Chain(seed=seed).draw(coin, range(100)) for seed in range(100)])
    for counted, n in ((flips.sum(), 10_000), ((flips[:, 1:] == flips[:, :-1]).sum(), 9900)):
        assert abs(counted - n / 2) < 5 * np.sqrt(n) / 2
    assert abs((flips[1:] == flips[:-1]).sum() - 4950) < 5 * np.sqrt(9900) / 2
    assert ((flips.sum(axis=0) > 20) & (flips.sum(axis=0) < 80)).all()
    assert ((flips.sum(axis=1) > 20) & (flips.sum(axis=1) < 80)).all()


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-3])
def test_a_temperature_near_zero_takes_the_largest(temperature: float) -> None:
    logits = random_logits(100)
    assert set(Chain(temperature=temperature).draw(logits, range(50))) == {int(logits.argmax())}


def test_the_largest_temperature_makes_all_alike() -> None:
    logits = random_logits(10)
    counted = np.bincount(Chain(temperature=1e6).draw(logits, range(10_000)), minlength=10)
    assert (np.abs(counted - 1000) < 5 * 30).all()


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e38])
def test_logits_of_any_size_are_taken(scale: float) -> None:
    logits = (random_logits(20) / np.float32(8) * np.float32(scale)).astype(np.float32)
    drawn = Chain(seed=3).draw(logits, range(100))
    assert set(drawn) == {int(logits.argmax())} if scale > 1 else len(set(drawn)) > 5


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64])
def test_ties_go_to_the_lowest_ids(n: int) -> None:
    logits = np.zeros(n, np.float32)
    for top_k in (1, 2, 3, n):
        kept = set(Chain(top_k=top_k).draw(logits, range(600)))
        assert kept == set(range(min(top_k, n)))
    assert set(Chain(top_p=0.0).draw(logits, range(20))) == {0}
    logits[n // 2 :] = 1.0
    assert set(Chain(top_k=1).draw(logits, range(20))) == {n // 2}


def test_min_p_of_one_keeps_all_of_the_largest() -> None:
    logits = np.array([1.0, 2.0, 2.0, 0.0, 2.0], np.float32)
    assert set(Chain(min_p=1.0).draw(logits, range(100))) == {1, 2, 4}


def test_sampling_leaves_the_logits_and_stays_in_its_scratch() -> None:
    n = 333
    logits = random_logits(n)
    before = logits.copy()
    n_bytes = LIBRARY.emel_choose_scratch(n, 0)
    scratch, choice = aligned_bytes(n_bytes + 256, fill=0xEE), abi.Choice()
    for top_k in (0, 1, 40, n):
        parameters = Chain(temperature=0.9, top_p=0.8, min_p=0.05, top_k=top_k, seed=3).parameters()
        check(LIBRARY.emel_choose(logits.ctypes.data, n, parameters, scratch.ctypes.data, n_bytes, choice))
        assert np.array_equal(logits, before)
        assert (scratch[n_bytes:] == 0xEE).all()
        assert 0 <= choice.token < n


def test_a_large_vocabulary_is_cut_right() -> None:
    logits = random_logits(50_000, 9)
    chain = Chain(temperature=1e6, top_k=20)
    assert set(chain.draw(logits, range(300))) == {int(each) for each in np.argsort(-logits, kind="stable")[:20]}
