"""Sums into the stream and scaled, capped results: near float64, exact where they must be, alike on every route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native.abi import LOGITS, NONE, OpFlag, OpKind
from emel.tensor.types import TensorType
from native.small_plan import SmallPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

    Array = NDArray[np.float32]

EPSILON = 2.0**-23
WIDTHS = (1, 15, 16, 17, 33, 100)


def run_add(
    x: Array, delta: Array, gate: Array | None, scale: float, isa: int, pool: LanePool, *, in_place: bool = False
) -> Array:
    n_rows, n = x.shape
    with SmallPlan(isa, max_tokens=n_rows) as plan:
        places = [plan.place(x.nbytes) for _ in range(2)]
        gates = plan.place(n_rows * 4)
        out = places[0] if in_place else plan.place(x.nbytes)
        inputs = [*places, NONE if gate is None else gates]
        plan.add(OpKind.ADD, in_=inputs, out=[out], dim=[n], param=[scale])
        plan.create()
        for place, values in zip([*places, gates], [x, delta, np.zeros(0) if gate is None else gate], strict=True):
            plan.write(place, values)
        plan.run(pool, n_rows)
        return plan.read(out, x.shape)


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("scale", [1.0, 0.22])
@pytest.mark.parametrize("gated", [False, True])
def test_add_is_near_float64(
    n: int, scale: float, gated: bool, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(n)
    x, delta = rng.standard_normal((2, 5, n)).astype(np.float32)
    gate = (4 * rng.standard_normal((5, 1))).astype(np.float32) if gated else None
    by = np.full((5, 1), np.float32(scale), np.float64)
    if gate is not None:
        by /= 1 + np.exp(-gate.astype(np.float64))
    exact = x + by * delta
    out = run_add(x, delta, gate, scale, routes["scalar"], lanes[1])
    assert (np.abs(out - exact) <= EPSILON * (np.abs(x) + 4 * np.abs(by * delta))).all()
    if scale == 1.0 and not gated:
        assert np.array_equal(out, x + delta)
    for isa in routes.values():
        for pool in lanes.values():
            assert np.array_equal(run_add(x, delta, gate, scale, isa, pool, in_place=True), out)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_add_hides_no_gate_that_is_not_finite(bad: float, lanes: dict[int, LanePool]) -> None:
    ones = np.ones((2, 20), np.float32)
    out = run_add(ones, ones, np.array([[bad], [0]], np.float32), 1.0, 0, lanes[1])
    assert np.isnan(out[0]).all()
    assert np.array_equal(out[1], np.full(20, 1.5))


def test_rms_norm_scales_what_it_adds(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    x, delta = np.random.default_rng(0).standard_normal((2, 3, 37)).astype(np.float32)
    results = []
    for isa in routes.values():
        with SmallPlan(isa, max_tokens=3) as plan:
            places = [plan.place(x.nbytes) for _ in range(3)]
            weight = {0: plan.vector(np.ones(37))}
            plan.add(OpKind.RMS_NORM, in_=places[:2], out=places[2:], weight=weight, dim=[37], param=[1e-5, 0.22])
            plan.create()
            plan.write(places[0], x)
            plan.write(places[1], delta)
            plan.run(lanes[3], 3)
            results.append((plan.read(places[0], x.shape), plan.read(places[2], x.shape)))
    total, out = results[0]
    exact = x + np.float64(np.float32(0.22)) * delta
    assert np.abs(total - exact).max() <= EPSILON * np.abs(exact).max()
    assert np.allclose(out, exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5), rtol=1e-5, atol=1e-6)
    assert all(np.array_equal(total, t) and np.array_equal(out, o) for t, o in results)


def run_matmul(
    pool: LanePool, isa: int, weight: Array, x: Array, param: list[float], bias: Array | None = None
) -> tuple[Array, NDArray[np.int32]]:
    """(tokens, rows) logits and their argmax."""
    rows, cols = weight.shape
    n = len(x)
    with SmallPlan(isa, max_tokens=n, max_outputs=n, n_vocab=rows) as plan:
        place = plan.place(x.nbytes)
        weights = {0: plan.matrix(pool, TensorType.F32, weight.tobytes(), rows, cols)}
        if bias is not None:
            weights[4] = plan.vector(bias)
        flags = OpFlag.OUTPUT_ROWS
        plan.add(OpKind.MATMUL, in_=[place], out=[LOGITS], weight=weights, dim=[cols, 1], param=param, flags=flags)
        plan.add(OpKind.ARGMAX, dim=[rows])
        plan.create()
        plan.write(place, x)
        batch = plan.run(pool, n, output_rows=range(n))
        return batch.logits, batch.argmax


@pytest.mark.parametrize("rows", [1, 16, 37, 200])
@pytest.mark.parametrize("cap", [0.0, 5.0, 30.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 0.125])
def test_results_are_scaled_and_capped(
    rows: int, cap: float, scale: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(rows)
    weight, x = rng.standard_normal((rows, 60)).astype(np.float32), rng.standard_normal((9, 60)).astype(np.float32) * 2
    bias = rng.standard_normal(rows).astype(np.float32)
    plain, _ = run_matmul(lanes[1], 0, weight, x, [], bias)
    got, argmax = run_matmul(lanes[1], 0, weight, x, [scale, cap], bias)
    exact = plain.astype(np.float64) * (scale or 1)
    if cap:
        exact = cap * np.tanh(exact / cap)
        assert (np.abs(got) <= np.float32(cap)).all()
    assert (np.abs(got - exact) <= 6e-7 * np.abs(exact)).all()
    assert argmax.tolist() == got.argmax(axis=1).tolist()
    if not cap and scale != 0.125:
        assert np.array_equal(got, plain)
    for isa in routes.values():
        for pool in lanes.values():
            assert np.array_equal(run_matmul(pool, isa, weight, x, [scale, cap], bias)[0], got)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_cap_hides_no_result_that_is_not_finite(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    weight, x = np.ones((20, 4), np.float32), np.ones((3, 4), np.float32)
    x[1, 2] = bad
    for isa in routes.values():
        logits, argmax = run_matmul(lanes[3], isa, weight, x, [1.0, 30.0])
        assert np.isfinite(logits[[0, 2]]).all()
        assert np.isnan(logits[1]).all()
        assert argmax.tolist() == [0, -1, 0]
