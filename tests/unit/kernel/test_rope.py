from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from emel._native import NativeError
from emel.kernel.rope import long_rope_magnitude, rope_frequencies, yarn_frequencies


def test_frequencies_are_the_inverse_powers_of_the_base() -> None:
    frequencies = rope_frequencies(10000.0, 64)
    assert len(frequencies) == 32
    assert frequencies[0] == 1.0
    for index, value in enumerate(frequencies):
        assert math.isclose(value, 10000.0 ** (-2 * index / 64), rel_tol=1e-14)


def test_frequencies_are_divided_by_factors_and_scale() -> None:
    plain = rope_frequencies(5e5, 8)
    scaled = rope_frequencies(5e5, 8, factors=[1.0, 2.0, 4.0, 8.0], linear_scale=2.0)
    assert list(scaled) == [value / (factor * 2.0) for value, factor in zip(plain, (1, 2, 4, 8), strict=True)]


@pytest.mark.parametrize("n_rot", [0, -2, 7])
def test_frequencies_need_pairs(n_rot: int) -> None:
    with pytest.raises(ValueError, match=f"cannot rotate {n_rot} dimensions: an even number from 2 is needed"):
        rope_frequencies(1e4, n_rot)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_frequencies_need_positive_finite_numbers(bad: float) -> None:
    with pytest.raises(ValueError, match="the RoPE base is"):
        rope_frequencies(bad, 8)
    with pytest.raises(ValueError, match="the RoPE linear scale is"):
        rope_frequencies(1e4, 8, linear_scale=bad)
    with pytest.raises(ValueError, match="RoPE factor 1 is"):
        rope_frequencies(1e4, 4, factors=[1.0, bad])


def test_frequencies_need_a_factor_each() -> None:
    with pytest.raises(ValueError, match="3 RoPE factors for 8 rotated dimensions: 4 are needed"):
        rope_frequencies(1e4, 8, factors=[1.0] * 3)


def exact_yarn(
    base: float, n: int, factor: float, context: float, fast: float, slow: float, *, keep_fractions: bool
) -> tuple[np.ndarray, float]:
    """As equations 17 to 23 of https://arxiv.org/abs/2309.00071 put it."""

    def pair_of(turns: float) -> Any:
        return n * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = pair_of(fast), pair_of(slow)
    if not keep_fractions:
        low, high = np.floor(low), np.ceil(high)
    low, high = np.clip([low, high], 0, n - 1)
    ramp = np.clip((np.arange(n // 2) - low) / max(high - low, 0.001), 0, 1)
    plain = base ** (-2 * np.arange(n // 2) / n)
    return plain * (1 - ramp) + plain / factor * ramp, 0.1 * math.log(factor) + 1


@pytest.mark.parametrize("keep_fractions", [False, True])
@pytest.mark.parametrize(
    ("base", "n_rot", "factor", "context"),
    [(1e4, 128, 16, 4096), (150000, 64, 32, 4096), (1e6, 128, 4, 32768), (1e4, 2, 1, 2048), (5e5, 96, 2.5, 17)],
)
def test_yarn_is_near_numpy(base: float, n_rot: int, factor: float, context: int, keep_fractions: bool) -> None:
    got, magnitude = yarn_frequencies(
        base, n_rot, factor=factor, original_context=context, keep_fractions=keep_fractions
    )
    exact, exact_magnitude = exact_yarn(base, n_rot, factor, context, 32, 1, keep_fractions=keep_fractions)
    assert np.allclose(got, exact, rtol=1e-12, atol=0)
    assert math.isclose(magnitude, exact_magnitude, rel_tol=1e-14)


def test_yarn_keeps_fast_frequencies_and_stretches_slow_ones() -> None:
    plain = rope_frequencies(1e4, 128)
    got, _ = yarn_frequencies(1e4, 128, factor=8, original_context=4096)
    assert list(got[:16]) == list(plain[:16])
    assert np.allclose(got[-10:], np.array(plain[-10:]) / 8, rtol=1e-15)


@pytest.mark.parametrize(
    "bad",
    [
        {"base": 1.0},
        {"base": math.nan},
        {"n_rot": 0},
        {"n_rot": 7},
        {"factor": 0.5},
        {"factor": math.inf},
        {"original_context": 0},
        {"beta_slow": 0.0},
        {"beta_fast": 1.0},
        {"beta_fast": math.nan},
    ],
)
def test_yarn_refuses_what_is_out_of_range(bad: dict[str, float]) -> None:
    arguments = {"base": 1e4, "n_rot": 64, "factor": 4, "original_context": 4096, **bad}
    with pytest.raises(NativeError, match=r"yarn: base .* n_rot .*even, at least 2"):
        yarn_frequencies(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("factor", "context"), [(32.0, 4096), (1.5, 8192), (1.0, 4096), (0.5, 4096)])
def test_long_rope_magnitude_is_near_math(factor: float, context: int) -> None:
    exact = math.sqrt(1 + math.log(factor) / math.log(context)) if factor > 1 else 1.0
    assert math.isclose(long_rope_magnitude(factor, context), exact, rel_tol=1e-14)


@pytest.mark.parametrize(("factor", "context"), [(0.0, 4096), (math.nan, 4096), (2.0, 1)])
def test_long_rope_magnitude_refuses_what_is_out_of_range(factor: float, context: int) -> None:
    with pytest.raises(NativeError, match=r"rope: factor .* \(above 0\) and original context"):
        long_rope_magnitude(factor, context)
