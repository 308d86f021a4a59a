"""What the benchmark multiplies is the product it says, of values that slow nothing down."""

from __future__ import annotations

import numpy as np
import pytest

from emel.bench.matmul import INPUTS, N_INPUTS, Product, RandomMatrix, random_rows
from emel.errors import EmelError
from emel.kernel.dequantize import dequantize
from emel.kernel.packing import PACKABLE
from emel.kernel.pool import LanePool
from emel.tensor.types import TensorType

ROWS, COLS = 48, 256


def result(product: Product, n_tokens: int) -> np.ndarray:
    return np.frombuffer(product.bits(), np.float32).reshape(n_tokens, -1)


@pytest.mark.parametrize("type_", PACKABLE)
def test_product_is_that_of_the_matrix_with_its_inputs(type_: TensorType) -> None:
    weights = np.frombuffer(dequantize(type_, random_rows(type_, ROWS, COLS), ROWS * COLS), np.float32)
    inputs = np.frombuffer(random_rows(TensorType.F32, N_INPUTS, COLS), np.float32).reshape(N_INPUTS, COLS)
    for n_tokens in (1, 9, N_INPUTS + 3):
        x = inputs[np.arange(n_tokens) % N_INPUTS].astype(np.float64)
        expected = x @ weights.reshape(ROWS, COLS).astype(np.float64).T
        bound = 1e-3 * np.abs(x) @ np.abs(weights.reshape(ROWS, COLS)).astype(np.float64).T
        with LanePool(1) as pool, RandomMatrix(pool, type_, ROWS, COLS) as matrix:
            with matrix.product(rows=ROWS, n_tokens=n_tokens) as product:
                got = result(product, n_tokens)
                assert (np.abs(got - expected) <= bound).all()
                assert product.n_multiply_adds == n_tokens * ROWS * COLS
            with matrix.product(rows=20, n_tokens=n_tokens) as product:
                assert np.array_equal(result(product, n_tokens), got[:, :20])


def test_product_runs_again_and_gives_the_same_bits_on_more_lanes() -> None:
    with (
        LanePool(1) as one,
        LanePool(3) as three,
        RandomMatrix(one, TensorType.Q4_K, 512, COLS) as matrix,
        matrix.product(rows=512, n_tokens=2) as alone,
        matrix.product(rows=512, n_tokens=2, pool=three) as shared,
    ):
        assert alone.time_calls(2) > 0
        assert shared.count_calls(1e-9) == 1
        assert alone.count_calls(0.01) > 1
        assert alone.bits() == shared.bits()


@pytest.mark.parametrize("type_", PACKABLE)
def test_random_rows_are_normal_numbers_the_same_each_time(type_: TensorType) -> None:
    raw = random_rows(type_, ROWS, COLS)
    assert raw == random_rows(type_, ROWS, COLS)
    assert len(raw) == type_.n_bytes(ROWS, COLS)
    values = np.frombuffer(dequantize(type_, raw, ROWS * COLS), np.float32)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 2
    assert (np.abs(values[values != 0]) >= np.finfo(np.float32).tiny).all()


@pytest.mark.parametrize("rows", [0, ROWS + 1])
def test_product_refuses_rows_the_matrix_does_not_have(rows: int) -> None:
    with (
        LanePool(1) as pool,
        RandomMatrix(pool, TensorType.F16, ROWS, COLS) as matrix,
        pytest.raises(ValueError, match=f"{rows} rows of a matrix of {ROWS}"),
    ):
        matrix.product(rows=rows, n_tokens=1)


def test_product_of_a_refused_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        LanePool(1) as pool,
        RandomMatrix(pool, TensorType.F16, ROWS, COLS) as matrix,
        matrix.product(rows=ROWS, n_tokens=1) as product,
    ):
        product._batch.record.n_tokens = 0
        with pytest.raises(EmelError, match="refused a product it had planned"):
            product.run()


def test_matrix_gives_its_memory_back() -> None:
    with LanePool(1) as pool:
        matrix = RandomMatrix(pool, TensorType.F16, ROWS, COLS)
        matrix.close()
        with pytest.raises(ValueError, match="these weights were closed"):
            matrix._packed.locate(INPUTS)
