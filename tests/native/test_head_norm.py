"""Norms of query and key heads in ROPE_STORE: near float64, before the rotation, alike on every route."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from native.test_attention import (
    ROPE_ERROR,
    Array,
    AttentionPlan,
    Heads,
    Sequence,
    in_chunks,
    random_sequence,
    rotated,
    shuffled_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

NORM_ERROR = 8 * 2.0**-23  # as of rms_norm


def exact_norm(x: Array, weight: Array | None, epsilon: float) -> NDArray[np.float64]:
    exact: NDArray[np.float64] = x.astype(np.float64)
    if weight is not None:
        exact = exact / np.sqrt((exact**2).mean(axis=-1, keepdims=True) + epsilon) * weight
    return exact


def stored(heads: Heads, sequence: Sequence, isa: int, pool: LanePool) -> tuple[Array, Array, bytes]:
    """q and k after ROPE_STORE, and the cache."""
    with AttentionPlan(heads, len(sequence.q), isa, n_blocks=1) as plan:
        plan.kv[:] = 0
        plan.attend(pool, *sequence[:], block_table=shuffled_table(1))
        return plan.read(plan.q, sequence.q.shape), plan.read(plan.k, sequence.k.shape), plan.kv.tobytes()


@pytest.mark.parametrize("which", ["both", "q", "k"])
@pytest.mark.parametrize(("head_dim", "n_rot"), [(128, 128), (64, 32), (40, 40), (7, 2), (16, 0)])
def test_heads_are_normed_and_then_rotated(
    head_dim: int, n_rot: int, which: str, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(head_dim)
    q_norm, k_norm = (1 + 0.3 * rng.standard_normal((2, head_dim))).astype(np.float32)
    norms = (q_norm if which != "k" else None, k_norm if which != "q" else None)
    heads = Heads(4, 2, head_dim, n_rot, 1, norms=norms, epsilon=1e-6)
    sequence = random_sequence(heads, 11)
    q, k, cache = stored(heads, sequence, routes["scalar"], lanes[1])
    for got, given, norm in ((q, sequence.q, norms[0]), (k, sequence.k, norms[1])):
        exact = exact_norm(given, norm, 1e-6)
        if n_rot:
            exact = rotated(exact.astype(np.float64), np.arange(11), heads)
        assert np.abs(got - exact).max() <= (NORM_ERROR + 2 * ROPE_ERROR) * np.abs(exact).max()
    for isa in routes.values():
        for pool in lanes.values():
            again = stored(heads, sequence, isa, pool)
            assert (again[0].tobytes(), again[1].tobytes(), again[2]) == (q.tobytes(), k.tobytes(), cache)


def test_attention_of_normed_heads_does_not_depend_on_chunks(
    routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    norm = np.linspace(0.5, 2, 40, dtype=np.float32)
    heads = Heads(4, 2, 40, 40, norms=(norm, norm[::-1].copy()), epsilon=1e-5)
    sequence = random_sequence(heads, 45)
    whole = in_chunks(heads, sequence, [45], routes["scalar"], lanes[1])
    assert not np.array_equal(whole, in_chunks(replace(heads, norms=()), sequence, [45], 0, lanes[1]))
    for isa in routes.values():
        assert np.array_equal(in_chunks(heads, sequence, [7, 30, 1, 7], isa, lanes[3]), whole)


def test_epsilon_counts(lanes: dict[int, LanePool]) -> None:
    heads = Heads(1, 1, 16, norms=(np.ones(16, np.float32), None), epsilon=3.0)
    ones = Sequence(*(np.ones((1, 1, 16), np.float32) for _ in range(3)))
    q, k, _ = stored(heads, ones, 0, lanes[1])
    assert np.array_equal(q, np.full_like(q, 0.5))
    assert np.array_equal(k, np.ones_like(k))


def test_heads_are_rotated_with_a_magnitude(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    heads = Heads(2, 1, 64, 32, 1, magnitude=1.3465736)
    sequence = random_sequence(heads, 9)
    q, _, _ = stored(heads, sequence, routes["scalar"], lanes[1])
    exact = rotated(sequence.q, np.arange(9), heads)
    assert np.abs(q - exact).max() <= 2 * ROPE_ERROR * np.abs(exact).max()
    for isa in routes.values():
        assert np.array_equal(stored(heads, sequence, isa, lanes[3])[0], q)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_head_whose_squares_are_not_finite_becomes_nan(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    heads = Heads(2, 1, 32, norms=(np.ones(32, np.float32),) * 2, epsilon=1e-5)
    sequence = random_sequence(heads, 3)
    sequence.q[1, 1, 9] = bad
    for isa in routes.values():
        q, _, _ = stored(heads, sequence, isa, lanes[3])
        assert np.isnan(q[1, 1]).all()
        assert np.isfinite(q[[0, 2]]).all()
        assert np.isfinite(q[1, 0]).all()
