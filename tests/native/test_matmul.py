"""Matrix products against float64 on the dequantised weights, within what rounding the activations can do."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from emel._native import LIBRARY, check
from emel._native.abi import Activations, OpKind
from emel.tensor.types import TensorType
from native.activations import MOST_OF_ONE_PLANE, MOST_QUANTUM, quantized
from native.formats import BLOCK_TYPES, FLOAT_TYPES, random_rows
from native.small_plan import SmallPlan, quantized_rows

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

EXACT_TYPES = (TensorType.Q4_0, TensorType.Q4_1, TensorType.Q8_0)
ROWS = (1, 15, 16, 17, 37)
TOKENS = (1, 2, 3, 7, 8, 9, 17)
BLOCK_COLUMNS = (32, 64, 96, 160, 576)
SUPER_COLUMNS = (256, 512, 768)
FLOAT_COLUMNS = (1, 2, 3, 4, 5, 7, 30, 64, 100)
# Largest error of an activation, of its block's largest magnitude.
QUANTUM = {Activations.INT16: 0.505 / MOST_QUANTUM, Activations.INT8: 0.505 / MOST_OF_ONE_PLANE}
EPSILON = 2.0**-24  # half a unit in the last place of float32

Array = NDArray[np.float32]


class Product:
    """x . weights^T + bias by a plan of one MATMUL, with a QUANTIZE before it for block types."""

    def __init__(
        self,
        type_: TensorType,
        weights: tuple[bytes, NDArray[np.float64]],
        bias: Array | None,
        max_tokens: int,
        activations: Activations = Activations.INT16,
    ) -> None:
        self.type, self.bias, self.max_tokens, self.activations = type_, bias, max_tokens, activations
        self.raw, self.meant = weights
        self.rows, self.cols = self.meant.shape

    def run(self, x: Array, isa: int, pool: LanePool) -> Array:
        n_tokens = len(x)
        with SmallPlan(isa, max_tokens=self.max_tokens, activations=self.activations) as plan:
            source = plan.place(self.max_tokens * self.cols * 4)
            out = plan.place(self.max_tokens * self.rows * 4)
            operand = source
            if self.type.is_quantized:
                operand = plan.place(self.max_tokens * plan.record_bytes(self.cols))
                plan.add(OpKind.QUANTIZE, in_=[source], out=[operand], dim=[self.cols])
            op = plan.add(OpKind.MATMUL, in_=[operand], out=[out], dim=[self.cols, 1])
            op.weight[0] = plan.matrix(pool, self.type, self.raw, self.rows, self.cols)
            if self.bias is not None:
                op.weight[4] = plan.vector(self.bias)
            plan.create()
            plan.write(source, x)
            plan.run(pool, n_tokens)
            return plan.read(out, (n_tokens, self.rows))

    def exact(self, x: Array) -> NDArray[np.float64]:
        product = x.astype(np.float64) @ self.meant.T
        return product if self.bias is None else product + self.bias

    def tolerance(self, x: Array) -> NDArray[np.float64]:
        """What rounding activations and adding in float32 may do to each output."""
        size = np.abs(self.meant)
        added = EPSILON * (self.cols + 3) * (np.abs(x).astype(np.float64) @ size.T + np.abs(self.exact(x)))
        if not self.type.is_quantized:
            return added
        amax = np.abs(x).reshape(len(x), -1, 32).max(axis=2).astype(np.float64)
        return added + QUANTUM[self.activations] * amax @ size.reshape(self.rows, -1, 32).sum(axis=2).T


def random_product(type_: TensorType, rows: int, cols: int, activations: Activations = Activations.INT16) -> Product:
    bias = np.random.default_rng(rows).standard_normal(rows).astype(np.float32) if rows % 2 else None
    return Product(type_, random_rows(type_, rows, cols), bias, max(TOKENS), activations)


def columns_of(type_: TensorType) -> tuple[int, ...]:
    """Odd and even numbers of blocks of a format, any numbers of columns of a float type."""
    if not type_.is_quantized:
        return FLOAT_COLUMNS
    return BLOCK_COLUMNS if type_.block_elements == 32 else SUPER_COLUMNS


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("type_", BLOCK_TYPES + FLOAT_TYPES)
def test_matmul_is_near_float64_on_every_route(
    type_: TensorType, rows: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    for cols in columns_of(type_):
        product = random_product(type_, rows, cols)
        x = np.random.default_rng(cols).standard_normal((max(TOKENS), cols)).astype(np.float32)
        specification = product.run(x, routes["scalar"], lanes[1])
        assert (np.abs(specification - product.exact(x)) <= product.tolerance(x)).all(), cols
        for n_tokens in TOKENS:
            for isa in routes.values():
                got = product.run(x[:n_tokens], isa, lanes[3 if n_tokens % 2 else 1])
                assert np.array_equal(got, specification[:n_tokens]), (cols, n_tokens, isa)


@pytest.mark.parametrize("type_", BLOCK_TYPES)
def test_int8_matmul_is_near_float64_on_every_route(
    type_: TensorType, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    for cols in columns_of(type_)[-2:]:
        product = random_product(type_, 37, cols, Activations.INT8)
        x = np.random.default_rng(cols).standard_normal((max(TOKENS), cols)).astype(np.float32)
        specification = product.run(x, routes["scalar"], lanes[1])
        error = np.abs(specification - product.exact(x))
        assert (error <= product.tolerance(x)).all(), cols
        product.activations = Activations.INT16
        assert (error > product.tolerance(x)).any()  # they are results of their own
        product.activations = Activations.INT8
        for n_tokens in TOKENS:
            for isa in routes.values():
                got = product.run(x[:n_tokens], isa, lanes[3 if n_tokens % 2 else 1])
                assert np.array_equal(got, specification[:n_tokens]), (cols, n_tokens, isa)


@pytest.mark.parametrize("activations", Activations)
@pytest.mark.parametrize("type_", BLOCK_TYPES)
def test_matmul_by_tiles_is_that_by_vectors(
    type_: TensorType, activations: Activations, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    if "avx512_amx" not in routes:
        pytest.skip("this CPU has no tiles, or the system grants none")
    n_tokens = 16 * 3 + 1
    for cols in columns_of(type_)[-2:]:
        product = random_product(type_, 37, cols, activations)
        product.max_tokens = n_tokens
        x = np.random.default_rng(cols).standard_normal((n_tokens, cols)).astype(np.float32)
        by_vectors = product.run(x, routes["avx512_vnni"], lanes[1])
        assert np.array_equal(product.run(x, routes["avx512_amx"], lanes[3]), by_vectors), cols


@pytest.mark.parametrize("type_", EXACT_TYPES)
def test_matmul_is_exact_where_nothing_rounds(
    type_: TensorType, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """Whole activations with the largest quantum for their largest, weights that the format holds: sums below 2^24."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-8, 8, (33, 32)).astype(np.float32)
    weights[:, 0], weights[:, 1] = (-127 if type_ is TensorType.Q8_0 else -8), 7  # the extremes fix the scale to 1
    x = rng.integers(-9, 10, (5, 32)).astype(np.float32)
    x[:, 3] = MOST_QUANTUM * rng.choice([-1, 1], 5)
    product = Product(type_, quantized_rows(weights, type_), None, 5)
    assert np.array_equal(product.meant, weights)
    for isa in routes.values():
        assert np.array_equal(product.run(x, isa, lanes[1]), x @ weights.T)


@pytest.mark.parametrize("activations", Activations)
@pytest.mark.parametrize("type_", BLOCK_TYPES)
def test_matmul_holds_the_largest_quanta(
    type_: TensorType, activations: Activations, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """Every activation at its end: sums of byte products must neither overflow nor saturate on any route."""
    cols = 2 * type_.block_elements
    product = random_product(type_, 48, cols, activations)
    for signs in (np.ones(cols), -np.ones(cols), np.resize([1, -1], cols), np.resize([1, 1, -1, -1], cols)):
        x = np.tile(3 * signs.astype(np.float32), (8, 1))
        specification = product.run(x, routes["scalar"], lanes[1])
        assert (np.abs(specification - product.exact(x)) <= product.tolerance(x)).all()
        for isa in routes.values():
            assert np.array_equal(product.run(x, isa, lanes[1]), specification)
            assert np.array_equal(product.run(x[:1], isa, lanes[1]), specification[:1])


@pytest.mark.parametrize("type_", [TensorType.Q4_1, TensorType.F16])
def test_matmul_of_parts_shares_the_work_and_keeps_them_apart(
    type_: TensorType, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    shapes, cols, n_tokens = (17, 5, 48, 1), 96, 3
    products = [random_product(type_, rows, cols) for rows in shapes]
    x = np.random.default_rng(3).standard_normal((n_tokens, cols)).astype(np.float32)
    expected = [product.run(x, routes["scalar"], lanes[1]) for product in products]
    for isa in routes.values():
        with SmallPlan(isa, max_tokens=n_tokens) as plan:
            source = plan.place(x.nbytes)
            operand = plan.place(n_tokens * plan.record_bytes(cols)) if type_.is_quantized else source
            if type_.is_quantized:
                plan.add(OpKind.QUANTIZE, in_=[source], out=[operand], dim=[cols])
            outs = [plan.place(n_tokens * rows * 4) for rows in shapes]
            op = plan.add(OpKind.MATMUL, in_=[operand], out=outs, dim=[cols, len(shapes)])
            for index, product in enumerate(products):
                op.weight[index] = plan.matrix(lanes[1], type_, product.raw, product.rows, cols)
                if product.bias is not None:
                    op.weight[4 + index] = plan.vector(product.bias)
            plan.create()
            plan.write(source, x)
            plan.run(lanes[3], n_tokens)
            for out, rows, wanted in zip(outs, shapes, expected, strict=True):
                assert np.array_equal(plan.read(out, (n_tokens, rows)), wanted)


def test_matmul_writes_nothing_behind_its_rows(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    for isa in routes.values():
        with SmallPlan(isa, max_tokens=3) as plan:
            source, out = plan.place(3 * 40 * 4), plan.place(3 * 5 * 4)
            op = plan.add(OpKind.MATMUL, in_=[source], out=[out], dim=[40, 1])
            op.weight[0] = plan.matrix(lanes[1], TensorType.F32, np.ones((5, 40), np.float32).tobytes(), 5, 40)
            plan.create()
            plan.write(source, np.ones((3, 40)))
            plan.arena[out:] = 0xEE
            plan.run(lanes[1], 3)
            assert (plan.read(out, (3, 5)) == 40).all()
            assert (plan.arena[out + 3 * 5 * 4 :] == 0xEE).all()


@pytest.mark.parametrize("activations", Activations)
@pytest.mark.parametrize("type_", BLOCK_TYPES)
def test_a_token_that_is_not_finite_spoils_its_own_products_alone(
    type_: TensorType, activations: Activations, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    cols = 3 * type_.block_elements
    product = random_product(type_, 37, cols, activations)
    x = np.random.default_rng(1).standard_normal((9, cols)).astype(np.float32)
    expected = product.run(x, routes["scalar"], lanes[1])
    x[4, 50] = np.inf
    for isa in routes.values():
        got = product.run(x, isa, lanes[3])
        assert np.isnan(got[4]).all()
        others = np.arange(9) != 4
        assert np.array_equal(got[others], expected[others])


def test_activations_are_what_the_products_read(lanes: dict[int, LanePool]) -> None:
    """Far tighter than the tolerance of the format: float64 on the record itself leaves only float32 sums."""
    product = random_product(TensorType.Q8_0, 17, 576)
    x = np.random.default_rng(7).standard_normal((1, 576)).astype(np.float32)
    assert product.bias is not None
    exact = quantized(x[0]).values() @ product.meant.T + product.bias
    size = np.abs(x[0]).astype(np.float64) @ np.abs(product.meant).T
    assert (np.abs(product.run(x, 0, lanes[1])[0] - exact) <= EPSILON * 40 * size).all()


@pytest.mark.parametrize("type_", BLOCK_TYPES + FLOAT_TYPES)
def test_dequantised_values_and_embedding_rows_are_those_of_the_gguf_package(
    type_: TensorType, lanes: dict[int, LanePool]
) -> None:
    """Equal, not near: packing and unpacking lose nothing of any format."""
    rows, cols = 19, 768
    raw, meant = random_rows(type_, rows, cols)
    values = np.zeros((rows, cols), np.float32)
    source = np.frombuffer(raw, np.uint8)
    check(LIBRARY.emel_dequantize(int(type_), source.ctypes.data, len(raw), values.ctypes.data, values.size))
    assert np.array_equal(values, meant.astype(np.float32))
    with SmallPlan(max_tokens=rows, n_vocab=rows) as plan:
        out = plan.place(values.nbytes)
        weight = plan.matrix(lanes[3], type_, raw, rows, cols)
        plan.add(OpKind.EMBED, out=[out], weight={0: weight}, param=[1.0])
        plan.create()
        order = np.random.default_rng(0).permutation(rows)
        plan.run(lanes[1], rows, tokens=order)
        assert np.array_equal(plan.read(out, values.shape), values[order])


def test_an_embedding_is_scaled(lanes: dict[int, LanePool]) -> None:
    values = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    with SmallPlan(n_vocab=3) as plan:
        out = plan.place(20)
        weight = plan.matrix(lanes[1], TensorType.F32, values.tobytes(), 3, 5)
        plan.add(OpKind.EMBED, out=[out], weight={0: weight}, param=[1.7])
        plan.create()
        plan.run(lanes[1], tokens=[2])
        assert np.array_equal(plan.read(out, (5,)), values[2] * np.float32(1.7))


@pytest.mark.parametrize("type_", [TensorType.Q4_K, TensorType.Q8_0, TensorType.F16])
def test_pieces_of_a_matrix_write_the_rows_of_the_whole(
    type_: TensorType, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(7)
    cols, bounds = 256, (0, 16, 48, 71)
    raw, meant = random_rows(type_, bounds[-1], cols)
    row_bytes = len(raw) // bounds[-1]
    for isa in routes.values():
        for n_tokens in (1, 3, 17):
            x = rng.standard_normal((n_tokens, cols)).astype(np.float32)
            whole = Product(type_, (raw, meant), None, n_tokens).run(x, isa, lanes[3])
            with SmallPlan(isa, max_tokens=n_tokens) as plan:
                operand = source = plan.place(x.nbytes)
                out = plan.place(whole.nbytes)
                if type_.is_quantized:
                    operand = plan.place(n_tokens * plan.record_bytes(cols))
                    plan.add(OpKind.QUANTIZE, in_=[source], out=[operand], dim=[cols])
                for begin, end in pairwise(bounds):
                    op = plan.add(OpKind.MATMUL, in_=[operand], out=[out], dim=[cols, 1, begin, 1, bounds[-1]])
                    part = raw[begin * row_bytes : end * row_bytes]
                    op.weight[0] = plan.matrix(lanes[3], type_, part, end - begin, cols)
                plan.create()
                plan.write(source, x)
                plan.run(lanes[3], n_tokens)
                assert plan.read(out, whole.shape).tobytes() == whole.tobytes()


@pytest.mark.parametrize(("begin", "width"), [(16, 31), (2**32 - 1, 31), (0, 15), (0, 0)])
def test_a_piece_beyond_the_row_is_refused(begin: int, width: int, lanes: dict[int, LanePool]) -> None:
    with SmallPlan(max_tokens=1) as plan:
        source, out = plan.place(64), plan.place(256)
        op = plan.add(OpKind.MATMUL, in_=[source], out=[out], dim=[16, 1, begin, 1, width])
        op.weight[0] = plan.matrix(lanes[1], TensorType.F32, np.zeros((16, 16), np.float32).tobytes(), 16, 16)
        assert plan.try_create() == 4  # out of bounds
        assert f"last of a piece is {begin + 16}, allowed {width}" in LIBRARY.emel_last_error().decode()
