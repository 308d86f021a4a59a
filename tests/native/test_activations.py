"""The activations of GATED against float64: within a bound, at the ends of float32, alike on every route."""

from __future__ import annotations

from math import erf
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native.abi import NONE, OpKind
from native.activations import quantized
from native.small_plan import SmallPlan
from native.test_rowwise import WIDTHS, assert_records_equal, on_every_route

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

    Exact = Callable[[NDArray[np.float64]], NDArray[np.float64]]

EPSILON = 2.0**-23  # of float32
ALPHA, LIMIT = 1.702, 7.0
SILU, GELU_TANH, GELU_ERF, CLAMPED_SWISH = range(4)


def silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


EXACT: dict[int, Exact] = {SILU: silu, GELU_TANH: gelu_tanh, GELU_ERF: gelu_erf}


def error_bound(activation: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of float32: relative and, where exp's argument is rounded, that argument's share; absolute for erf's formula."""
    exact = np.abs(EXACT[activation](x))
    if activation == GELU_ERF:
        return 1e-6 * np.minimum(np.abs(x), 1) + 4 * EPSILON * exact
    steepness = 0 if activation == SILU else np.abs(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return (16 + 2 * steepness) * EPSILON * exact + 5e-39 * np.abs(x)  # where exp is clamped


def run_gated(
    activation: int, gate: NDArray[np.float32], up: NDArray[np.float32] | None, isa: int, pool: LanePool
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """(rows, n) float32 and (rows, bytes) records."""
    n_rows, n = gate.shape
    with SmallPlan(isa, max_tokens=n_rows) as plan:
        n_bytes = plan.record_bytes(n)
        places = [plan.place(n_rows * n * 4) for _ in range(3)]
        records = plan.place(n_rows * n_bytes)
        plan.add(
            OpKind.GATED,
            in_=[places[0], NONE if up is None else places[1]],
            out=[places[2], records],
            dim=[n, activation],
            param=[ALPHA, LIMIT],
        )
        plan.create()
        plan.write(places[0], gate)
        if up is not None:
            plan.write(places[1], up)
        plan.run(pool, n_rows)
        return plan.read(places[2], (n_rows, n)), plan.read_records(records, n_rows, n)


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("activation", EXACT)
def test_activation_alone_and_as_a_gate_is_near_float64(
    activation: int, n: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(n)
    gate = (rng.standard_normal((3, n)) * 4).astype(np.float32)
    up = rng.standard_normal((3, n)).astype(np.float32)
    wide = gate.astype(np.float64)
    exact, bound = EXACT[activation](wide), error_bound(activation, wide)
    for factor in (None, up):
        out, records = on_every_route(
            lambda isa, pool, factor=factor: run_gated(activation, gate, factor, isa, pool),  # type: ignore[misc]
            routes,
            lanes,
        )
        by = np.ones_like(up) if factor is None else factor
        assert (np.abs(out - exact * by) <= bound * np.abs(by) + EPSILON * np.abs(exact * by)).all()
        for row, raw in zip(out, records, strict=True):
            assert_records_equal(raw, quantized(row), n)


@pytest.mark.parametrize("activation", EXACT)
def test_activation_is_near_float64_over_its_whole_range(activation: int, lanes: dict[int, LanePool]) -> None:
    x = np.concatenate([np.linspace(-12, 12, 20001), np.geomspace(1e-30, 10, 500), -np.geomspace(1e-30, 10, 500)])
    gate = x.astype(np.float32)[None]
    out, _ = run_gated(activation, gate, None, 0, lanes[1])
    wide = gate.astype(np.float64)
    assert (np.abs(out - EXACT[activation](wide)) <= error_bound(activation, wide)).all()


@pytest.mark.parametrize("activation", EXACT)
def test_activation_at_the_ends_of_float32(activation: int, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    gate = np.array([[0.0, -0.0, 1e-38, 100.0, 1e15, 3e38, -1e3, -1e15, -3e38, np.inf, -np.inf, np.nan]], np.float32)
    out, _ = on_every_route(lambda isa, pool: run_gated(activation, gate, None, isa, pool), routes, lanes)
    assert np.array_equal(out[0, :2], [0, 0])
    assert out[0, 2] == pytest.approx(0.5e-38, rel=1e-6)
    assert np.array_equal(out[0, 3:6], gate[0, 3:6])
    assert (np.abs(out[0, 6:9]) <= 5e-39 * np.abs(gate[0, 6:9])).all()
    assert not np.isfinite(out[0, 9:]).any()


def test_clamped_swish_is_near_float64(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    rng = np.random.default_rng(5)
    gate, up = (rng.standard_normal((2, 3, 65)) * 8).astype(np.float32)
    out, records = on_every_route(lambda isa, pool: run_gated(CLAMPED_SWISH, gate, up, isa, pool), routes, lanes)
    least = np.minimum(gate.astype(np.float64), LIMIT)
    factor = np.clip(up.astype(np.float64), -LIMIT, LIMIT) + 1
    exact = least / (1 + np.exp(-np.float64(np.float32(ALPHA)) * least)) * factor
    bound = (16 + 2 * ALPHA * np.abs(least)) * EPSILON * np.abs(exact) + EPSILON * np.abs(least * up)
    assert (np.abs(out - exact) <= bound).all()
    assert (np.abs(up) > LIMIT).any()
    for row, raw in zip(out, records, strict=True):
        assert_records_equal(raw, quantized(row), 65)


@pytest.mark.parametrize("spoiled", ["gate", "up"])
def test_clamped_swish_keeps_a_nan(spoiled: str, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    gate, up = np.ones((2, 1, 33), np.float32)
    (gate if spoiled == "gate" else up)[0, 4] = np.nan
    out, _ = on_every_route(lambda isa, pool: run_gated(CLAMPED_SWISH, gate, up, isa, pool), routes, lanes)
    assert np.isnan(out[0]).tolist() == [index == 4 for index in range(33)]
