from __future__ import annotations

import math

import pytest

from emel.kernel.rope import rope_frequencies


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
