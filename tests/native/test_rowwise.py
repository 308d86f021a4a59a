"""Kernels that work row by row: quantisation to the letter of the contract, norms and gates against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native.abi import OpFlag, OpKind
from native.activations import Record, quantized, read_record
from native.small_plan import SmallPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

WIDTHS = (1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65, 576)
N_ROWS = 3
EPSILON = 2.0**-23  # of float32
NORM_ERROR = 8 * EPSILON  # relative: a sum of squares in 16 partial sums, a root, a quotient, two products
GATE_ERROR = 16 * EPSILON  # relative: exp below 2e-7, a sum, a quotient, a product
EVERY_EXPONENT = 2.0 ** np.arange(-148, 128, dtype=np.float64)


def hostile_rows(n: int, seed: int = 0) -> NDArray[np.float32]:
    """(3, n): ordinary values, values of every magnitude, and blocks of zeros and of subnormals."""
    rng = np.random.default_rng(seed + n)
    rows = rng.standard_normal((N_ROWS, n)).astype(np.float32)
    rows[1] *= rng.choice(EVERY_EXPONENT[30:250], n).astype(np.float32)
    rows[2, : n // 2] = rng.choice(np.array([0.0, -0.0, 1e-45, -1e-40, 1e-34, 2.0**-112], np.float32), n // 2)
    return rows


def run_op(
    kind: OpKind, inputs: list[NDArray[np.float32]], isa: int, pool: LanePool, *, epsilon: float | None = None
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """(rows, n) float32 and (rows, bytes) records of an op over rows; for a norm, the last input is its weight."""
    n_rows, n = inputs[0].shape
    with SmallPlan(isa, max_tokens=n_rows) as plan:
        records_bytes = plan.record_bytes(n)
        rows = inputs if epsilon is None else inputs[:-1]
        places = [plan.place(n_rows * n * 4) for _ in rows]
        out, records = plan.place(n_rows * n * 4), plan.place(n_rows * records_bytes)
        outs = [records] if kind is OpKind.QUANTIZE else [out, records]
        op = plan.add(kind, in_=places, out=outs, dim=[n])
        if epsilon is not None:
            op.param[0] = epsilon
            op.weight[0] = plan.vector(inputs[-1])
        plan.create()
        for place, values in zip(places, rows, strict=True):
            plan.write(place, values)
        plan.run(pool, n_rows)
        return plan.read(out, (n_rows, n)), plan.read_records(records, n_rows, n)


def on_every_route(
    run: Callable[[int, LanePool], tuple[NDArray[np.float32], NDArray[np.uint8]]],
    routes: dict[str, int],
    lanes: dict[int, LanePool],
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The scalar result, after every other route and number of lanes gave the same bytes."""
    expected = run(routes["scalar"], lanes[1])
    for isa in routes.values():
        for pool in lanes.values():
            out, records = run(isa, pool)
            assert out.tobytes() == expected[0].tobytes()
            assert records.tobytes() == expected[1].tobytes()
    return expected


def assert_records_equal(raw: NDArray[np.uint8], expected: Record, n: int) -> None:
    for name, got in read_record(raw, n).parts().items():
        assert got.tobytes() == expected.parts()[name].tobytes(), name


@pytest.mark.parametrize("n", WIDTHS)
def test_quantize_is_what_the_contract_says(n: int, routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    x = hostile_rows(n)
    _, records = on_every_route(lambda isa, pool: run_op(OpKind.QUANTIZE, [x], isa, pool), routes, lanes)
    for row, raw in zip(x, records, strict=True):
        assert_records_equal(raw, quantized(row), n)


def test_quantize_is_within_half_a_quantum(lanes: dict[int, LanePool]) -> None:
    x = hostile_rows(576)[:1]
    _, records = run_op(OpKind.QUANTIZE, [x], 0, lanes[1])
    record = read_record(records[0], 576)
    amax = np.abs(x.reshape(-1, 32)).max(axis=1)
    error = np.abs(record.values() - x.ravel().astype(np.float64)).reshape(-1, 32)
    assert (error <= 0.505 * amax[:, None] / 32512).all()
    assert max(abs(int(record.high.min())), int(record.high.max())) == 127
    assert max(abs(int(record.low.min())), int(record.low.max())) == 127


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantize_marks_a_block_that_is_not_finite_and_no_other(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    x = hostile_rows(96)[:1]
    x[0, 40] = bad
    _, records = on_every_route(lambda isa, pool: run_op(OpKind.QUANTIZE, [x], isa, pool), routes, lanes)
    record = read_record(records[0], 96)
    assert np.isnan(record.scale).tolist() == [False, True, False]
    for name, got in record.parts().items():
        assert np.array_equal(got[[0, 2]], quantized(x[0]).parts()[name][[0, 2]]), name


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_rms_norm_is_near_float64_and_quantises_what_it_gives(
    n: int, epsilon: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(n)
    x, delta = rng.standard_normal((2, N_ROWS, n)).astype(np.float32) * np.float32(3)
    weight = rng.standard_normal(n).astype(np.float32)

    def run(isa: int, pool: LanePool) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        return run_op(OpKind.RMS_NORM, [x, delta, weight], isa, pool, epsilon=epsilon)

    out, records = on_every_route(run, routes, lanes)
    total = (x + delta).astype(np.float64)
    exact = total / np.sqrt((total**2).mean(axis=1, keepdims=True) + epsilon) * weight
    assert np.abs(out - exact).max() <= NORM_ERROR * np.abs(exact).max()
    for row, raw in zip(out, records, strict=True):
        assert_records_equal(raw, quantized(row), n)


def test_rms_norm_leaves_the_sum_in_its_first_operand(lanes: dict[int, LanePool]) -> None:
    x, delta = np.random.default_rng(1).standard_normal((2, 2, 37)).astype(np.float32)
    with SmallPlan(max_tokens=2) as plan:
        places = [plan.place(x.nbytes) for _ in range(3)]
        weight = plan.vector(np.ones(37))
        plan.add(OpKind.RMS_NORM, in_=places[:2], out=places[2:], weight={0: weight}, dim=[37], param=[1e-5])
        plan.create()
        plan.write(places[0], x)
        plan.write(places[1], delta)
        plan.run(lanes[1], 2)
        assert np.array_equal(plan.read(places[0], x.shape), x + delta)
        assert np.array_equal(plan.read(places[1], x.shape), delta)


def test_rms_norm_notes_the_first_layer_of_each_token_that_is_not_finite(lanes: dict[int, LanePool]) -> None:
    x = np.ones((4, 20), np.float32)
    x[1, 19], x[3, 0] = np.nan, -np.inf
    with SmallPlan(max_tokens=4, max_outputs=2) as plan:
        place, out = plan.place(x.nbytes), plan.place(x.nbytes)
        weight = plan.vector(np.ones(20))
        for layer in (5, 6):
            plan.add(OpKind.RMS_NORM, layer=layer, in_=[place], out=[out], weight={0: weight}, dim=[20], param=[1e-5])
        plan.create()
        plan.write(place, x)
        assert plan.run(lanes[3], 4).bad_layer.tolist() == [-1, 5, -1, 5]


def test_rms_norm_of_output_rows_notes_the_tokens_they_come_from(lanes: dict[int, LanePool]) -> None:
    rows = np.ones((2, 20), np.float32)
    rows[1, 3] = np.inf
    with SmallPlan(max_tokens=4, max_outputs=2) as plan:
        place, out = plan.place(rows.nbytes), plan.place(rows.nbytes)
        op = plan.add(OpKind.RMS_NORM, layer=9, in_=[place], out=[out], weight={0: plan.vector(np.ones(20))}, dim=[20])
        op.flags = OpFlag.OUTPUT_ROWS
        plan.create()
        plan.write(place, rows)
        assert plan.run(lanes[1], 4, output_rows=[0, 2]).bad_layer.tolist() == [-1, -1, 9, -1]


@pytest.mark.parametrize("n", WIDTHS)
def test_gated_is_near_float64_and_quantises_what_it_gives(
    n: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(n)
    gate = (rng.standard_normal((N_ROWS, n)) * 8).astype(np.float32)
    up = rng.standard_normal((N_ROWS, n)).astype(np.float32)
    out, records = on_every_route(lambda isa, pool: run_op(OpKind.GATED, [gate, up], isa, pool), routes, lanes)
    exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    assert (np.abs(out - exact) <= GATE_ERROR * np.abs(exact)).all()
    for row, raw in zip(out, records, strict=True):
        assert_records_equal(raw, quantized(row), n)


def test_gated_is_right_at_the_ends_of_exp(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    gate = np.array([[0.0, -0.0, 1e-38, 87.0, 89.0, 3e38, -20.0, -87.0, np.inf, np.nan]], np.float32)
    up = np.ones_like(gate)
    out, _ = on_every_route(lambda isa, pool: run_op(OpKind.GATED, [gate, up], isa, pool), routes, lanes)
    expected = gate[0, :8].astype(np.float64) / (1 + np.exp(-gate[0, :8].astype(np.float64)))
    assert np.allclose(out[0, :8], expected, rtol=GATE_ERROR, atol=0)
    assert out[0, 8] == np.inf
    assert np.isnan(out[0, 9])


def test_gated_of_numbers_far_below_zero_is_nearly_nothing(lanes: dict[int, LanePool]) -> None:
    """exp is clamped at 88.37, so silu ends at x * 4e-39 instead of vanishing."""
    gate = np.array([[-88.0, -100.0, -1e6, -1e30]], np.float32)
    out, _ = run_op(OpKind.GATED, [gate, np.ones_like(gate)], 0, lanes[1])
    assert (np.abs(out[0] / gate[0]) <= 1e-38).all()
