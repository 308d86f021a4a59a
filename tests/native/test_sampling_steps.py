"""Every step of the sampling chain against its definition in float64 (tests/reference/sampling.py).

A draw says how surprising it was: drawn often enough, the tokens tell the whole distribution that the steps left.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emel.kernel.sampling import NativeSampler, Step
from reference.sampling import ORDER, Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

N_DRAWS = 300
OFTEN = 0.06  # of 300 draws one is there but once in 10^8 times
BITS = 2e-3  # of surprise: weights are float32
STEPS = dict(zip(ORDER, Step, strict=True))
NOT_NUMBERS = ("biases", "breakers", "history", "order")


def native(reference: Reference, n_vocab: int, **changes: Any) -> NativeSampler:
    numbers = {name: value for name, value in asdict(reference).items() if name not in NOT_NUMBERS}
    return NativeSampler(
        n_vocab,
        steps=[STEPS[name] for name in reference.order],
        biases=reference.biases.items(),
        breakers=reference.breakers,
        history=reference.history,
        **numbers | changes,
    )


def assert_draws_are(reference: Reference, logits: NDArray[np.float32], n_draws: int = N_DRAWS) -> None:
    """Nothing is drawn that the reference rules out, all that is likely is, and with its probability."""
    expected = reference.probabilities(logits)
    sampler = native(reference, len(logits), seed=5)
    surprises: dict[int, float] = {}
    for position in range(n_draws):
        token = sampler.choose(logits.ctypes.data, position)
        assert surprises.setdefault(token, sampler.surprise) == sampler.surprise
    for token, surprise in surprises.items():
        assert expected[token] > 0, f"{token} of {np.flatnonzero(expected)} by {reference}"
        assert surprise == pytest.approx(-np.log2(expected[token]), abs=BITS), f"{token} by {reference}"
    assert set(np.flatnonzero(expected >= OFTEN)) <= set(surprises)


def random_logits(n: int, seed: int = 0, scale: float = 2.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(n) * scale).astype(np.float32)


ROWS: dict[str, NDArray[np.float32]] = {
    "random": random_logits(30),
    "steep": random_logits(30, 1, 8.0),
    "many": random_logits(1000, 2, 3.0),
    "blocks": random_logits(192, 3, 3.0),
    "ties": np.round(random_logits(50, 4)).astype(np.float32),
    "equal": np.full(9, -3.5, np.float32),
    "zeros": np.array([0.0, -0.0, 0.0, -0.0, -1.0], np.float32),
    "one": np.array([7.0], np.float32),
    "two": np.array([1.0, 2.0], np.float32),
    "huge": np.array([3e38, -3e38, 1e38, 3e38, 0.0], np.float32),
    "tiny": np.array([1e-40, -1e-40, 1e-45, 0.0], np.float32),
}
CHAINS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 30.0},
    "top_k 1": {"top_k": 1},
    "top_k 3": {"top_k": 3},
    "top_k 100": {"top_k": 100, "temperature": 1.5},
    "top_p": {"top_p": 0.8},
    "top_p 0": {"top_p": 0.0},
    "top_p kept": {"top_p": 0.3, "min_keep": 4},
    "min_p": {"min_p": 0.15},
    "min_p 1": {"min_p": 1.0},
    "min_p kept": {"min_p": 0.9, "min_keep": 3},
    "typical": {"typical_p": 0.7},
    "typical kept": {"typical_p": 0.1, "min_keep": 3},
    "sigma": {"top_n_sigma": 1.5},
    "sigma 0": {"top_n_sigma": 0.0},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.08},
    "xtc kept": {"xtc_probability": 1.0, "xtc_threshold": 0.08, "min_keep": 29},
    "xtc off": {"xtc_probability": 1.0, "xtc_threshold": 0.51},
    "dynamic": {"temperature": 1.0, "dynatemp_range": 0.5},
    "dynamic to 0": {"temperature": 0.5, "dynatemp_range": 2.0, "dynatemp_exponent": 0.5},
    "mirostat 1": {"mirostat": 1, "mirostat_mu": 3.0, "temperature": 1.2},
    "mirostat 1 wide": {"mirostat": 1, "mirostat_mu": 30.0},
    "mirostat 2": {"mirostat": 2, "mirostat_mu": 2.5, "temperature": 0.9},
    "mirostat 2 narrow": {"mirostat": 2, "mirostat_mu": -3.0},
    "penalties": {
        "repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "history": [0, 0, 0], "top_k": 12,
    },
    "rewards": {"repeat_penalty": 0.5, "presence_penalty": -1.0, "frequency_penalty": -0.3, "history": [0, 0]},
    "biases": {"biases": {0: -np.inf}, "top_k": 5},
    "default": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "all": {
        "temperature": 0.9, "dynatemp_range": 0.2, "top_k": 20, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9,
        "top_n_sigma": 2.0, "xtc_probability": 1.0, "xtc_threshold": 0.3, "repeat_penalty": 1.1, "history": [0],
    },
    "backwards": {
        "temperature": 0.9, "top_k": 6, "top_p": 0.9, "min_p": 0.05, "order": ORDER[::-1], "history": [0, 0],
        "repeat_penalty": 1.5, "presence_penalty": 0.5,
    },
    "cut then penalties": {
        "top_k": 4, "order": ("top_k", "penalties"), "history": [0, 0], "presence_penalty": 0.5,
    },
}  # fmt: skip
# Where the definitions leave it open, or float64 and float32 round to different sides of a boundary.
OPEN = {
    "typical": {"huge", "equal", "tiny"},
    "typical kept": {"huge", "equal", "tiny"},
    "min_p 1": {"tiny"},
    "mirostat 1": {"huge", "equal", "zeros"},
    "mirostat 1 wide": {"huge", "equal"},
    "all": {"two"},
    "biases": {"one"},
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the reference, for logits of 3e38
@pytest.mark.parametrize(
    ("row", "chain"), [(row, each) for each in CHAINS for row in ROWS if row not in OPEN.get(each, ())]
)
def test_draws_are_those_of_the_definition(row: str, chain: str) -> None:
    assert_draws_are(Reference(**CHAINS[chain]), ROWS[row])


tokens = st.integers(0, 3)


@given(
    history=st.lists(tokens, max_size=40),
    breakers=st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=2),
    allowed=st.integers(0, 4),
    window=st.integers(-1, 30),
    order=st.sampled_from([("dry",), ("top_k", "dry"), ("dry", "top_k"), ORDER]),
    multiplier=st.sampled_from([0.3, 1.0]),
)
@settings(max_examples=300, deadline=None)
def test_dry_sees_the_repetitions(
    history: list[int],
    breakers: list[list[int]],
    allowed: int,
    window: int,
    order: Sequence[str],
    multiplier: float,
) -> None:
    reference = Reference(
        history=history,
        breakers=breakers,
        dry_allowed_length=allowed,
        dry_penalty_last_n=window,
        dry_multiplier=multiplier,
        dry_base=1.2,
        order=order,
        top_k=4,
    )
    assert_draws_are(reference, random_logits(5, 1, 1.0), n_draws=60)


def test_dry_example_of_its_definition() -> None:
    """What came after the longest repetition pays most: 1.75 for each token beyond the allowed two."""
    reference = Reference(history=[1, 2, 3, 4, 0, 1, 2, 3], dry_multiplier=0.8)
    expected = np.zeros(6)
    expected[4] = -0.8 * 1.75
    assert np.allclose(reference.after_dry(np.zeros(6)), expected)
    assert_draws_are(reference, np.zeros(6, np.float32))


def test_dry_of_a_long_repetition_stays_finite() -> None:
    sampler = native(Reference(history=[1] * 5000, dry_multiplier=5.0, dry_penalty_last_n=-1, dry_base=100.0), 3)
    logits = np.zeros(3, np.float32)
    assert {sampler.choose(logits.ctypes.data, position) for position in range(100)} == {0, 2}


@given(
    history=st.lists(tokens, max_size=20),
    window=st.integers(-1, 12),
    repeat=st.floats(0.5, 2.0, width=16),
    presence=st.floats(-1, 1, width=16),
    frequency=st.floats(-1, 1, width=16),
    order=st.sampled_from([("penalties",), ("top_k", "penalties"), ("penalties", "top_k"), ORDER]),
)
@settings(max_examples=200, deadline=None)
def test_penalties_count_the_window(
    history: list[int], window: int, repeat: float, presence: float, frequency: float, order: Sequence[str]
) -> None:
    reference = Reference(
        history=history,
        repeat_last_n=window,
        repeat_penalty=repeat,
        presence_penalty=presence,
        frequency_penalty=frequency,
        order=order,
        top_k=3,
    )
    assert_draws_are(reference, random_logits(5, 1, 1.0), n_draws=40)


@given(bits=st.integers(1, 2**70 - 1), top_k=st.integers(0, 80))
@settings(max_examples=60, deadline=None)
def test_what_is_not_allowed_is_never_chosen(bits: int, top_k: int) -> None:
    logits = random_logits(70, 6)
    allowed = {token for token in range(70) if bits >> token & 1}
    words = np.array([bits >> at & 0xFFFFFFFF for at in (0, 32, 64)], np.uint32)
    for temperature in (0.0, 1.0):
        sampler = NativeSampler(70, steps=[Step.TOP_K], top_k=top_k, temperature=temperature)
        drawn = {sampler.choose(logits.ctypes.data, at, words.ctypes.data) for at in range(40)}
        assert drawn <= set(sorted(allowed, key=lambda token: -logits[token])[: top_k or None])
        if temperature == 0:
            assert drawn == {max(allowed, key=lambda token: (logits[token], -token))}


@pytest.mark.parametrize("order", [ORDER, ORDER[::-1], ()])
def test_greedy_takes_the_largest_after_what_changes_logits(order: tuple[str, ...]) -> None:
    """Cuts and XTC have no say; ties go to the lowest id."""
    logits = np.array([5.0, 4.9, 4.9, 1.0], np.float32)
    cuts: dict[str, Any] = {"temperature": 0.0, "xtc_probability": 1.0, "top_p": 0.0, "mirostat": 0}
    assert native(Reference(order=order, **cuts), 4).choose(logits.ctypes.data, 0) == 0
    penalized = native(Reference(order=order, **cuts, history=[0], presence_penalty=1.0), 4)
    assert penalized.choose(logits.ctypes.data, 0) == (1 if order else 0)
    assert native(Reference(order=order, **cuts, biases={3: 4.0}), 4).choose(logits.ctypes.data, 0) == 0
    assert native(Reference(order=order, **cuts, biases={3: 4.5}), 4).choose(logits.ctypes.data, 0) == 3
    assert penalized.surprise == 0


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.8])
def test_xtc_tosses_a_coin_of_its_own(probability: float) -> None:
    """As often as asked for, at the same positions with every seed's draws, and independent of the draw."""
    logits = np.array([0.0, 0.0, 0.0, 0.0, -20.0], np.float32)
    on: dict[str, Any] = {"xtc_probability": probability, "xtc_threshold": 0.2, "steps": [Step.XTC]}
    n, seeds = 0, 4000
    lasts = 0
    for seed in range(seeds):
        sampler = NativeSampler(5, seed=seed, **on)
        token = sampler.choose(logits.ctypes.data, 9)
        is_cut = sampler.surprise < 1.0  # of one token, not of four
        n += is_cut
        lasts += token == 3 and not is_cut
    assert abs(n / seeds - probability) < 5 * np.sqrt(0.25 / seeds)
    assert abs(lasts / seeds - (1 - probability) / 4) < 5 * np.sqrt(0.25 / seeds)


def test_a_bias_adds_to_the_logit() -> None:
    assert_draws_are(Reference(biases={2: 1.5, 0: -2.0, 1: -np.inf}), random_logits(5, 1, 1.0))
    extreme = native(Reference(biases={0: 3e38, 1: -3e38}), 3)
    logits = np.array([3e38, -3e38, 0.0], np.float32)
    assert {extreme.choose(logits.ctypes.data, at) for at in range(20)} == {0}


@pytest.mark.parametrize("n", [1, 63, 64, 65, 49_152])
@pytest.mark.parametrize("top_k", [1, 2, 40, 700, 5000])
def test_top_k_keeps_as_many_as_asked_for_with_the_lowest_ids_of_ties(n: int, top_k: int) -> None:
    """Of equal weights each has the surprise log2 of how many there are."""
    logits = np.zeros(n, np.float32)
    sampler = NativeSampler(n, steps=[Step.TOP_K], top_k=top_k)
    drawn = {sampler.choose(logits.ctypes.data, at) for at in range(100)}
    assert max(drawn) < top_k
    assert sampler.surprise == pytest.approx(np.log2(min(n, top_k)), abs=BITS)


@pytest.mark.parametrize("name", ["top_p", "typical_p", "min_p", "top_k"])
def test_cuts_of_a_large_vocabulary_keep_what_the_definition_does(name: str) -> None:
    logits = random_logits(20_000, 8, 2.5)
    values: dict[str, Any] = {"top_p": 0.9, "typical_p": 0.6, "min_p": 0.3, "top_k": 123}
    assert_draws_are(Reference(**{name: values[name]}), logits)
