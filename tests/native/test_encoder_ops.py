"""What encoders add: layer norms, rows of positions and types, means of sequences; alike on every route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emel._native import LIBRARY, check
from emel._native.abi import LOGITS, OpFlag, OpKind
from emel.tensor.types import TensorType
from native.activations import quantized, read_record
from native.small_plan import SCALAR, SmallPlan, quantized_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

WIDTHS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 65, 384)
N_ROWS = 5
ERROR = 2.0**-20  # of values of about 1: two sums of n values, a root, a quotient, three products
EPSILON = 1e-12


def layer_norm(
    x: NDArray[np.float32], delta: NDArray[np.float32] | None, weight: Any, bias: Any, isa: int, pool: LanePool
) -> tuple[NDArray[np.float32], NDArray[np.uint8], list[int]]:
    """(rows, n) results, their records, and the first layer that was not finite of each row."""
    n_rows, n = x.shape
    with SmallPlan(isa, max_tokens=n_rows) as plan:
        n_record = plan.record_bytes(n)
        places = [plan.place(x.nbytes) for _ in range(3)]
        records = plan.place(n_rows * n_record)
        weights = {0: plan.vector(weight)} | ({} if bias is None else {1: plan.vector(bias)})
        inputs = places[:1] if delta is None else places[:2]
        out = [places[2], records]
        plan.add(OpKind.LAYER_NORM, in_=inputs, out=out, weight=weights, dim=[n], param=[EPSILON, 0.5], layer=4)
        plan.create()
        plan.write(places[0], x)
        if delta is not None:
            plan.write(places[1], delta)
        batch = plan.run(pool, n_rows)
        return plan.read(places[2], x.shape), plan.read_records(records, n_rows, x.shape[1]), batch.bad_layer.tolist()


@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("is_whole", [True, False])
def test_layer_norm_is_near_float64_and_the_same_on_every_route(
    n: int, is_whole: bool, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """Whole: with a delta and a bias. The mean is far from zero, so that what is left of it would show."""
    rng = np.random.default_rng(n)
    x = (3.0 + rng.standard_normal((N_ROWS, n))).astype(np.float32)
    delta = rng.standard_normal((N_ROWS, n)).astype(np.float32) if is_whole else None
    weight = (1 + 0.3 * rng.standard_normal(n)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32) if is_whole else None
    out, records, bad = layer_norm(x, delta, weight, bias, routes["scalar"], lanes[1])
    exact = x.astype(np.float64) if delta is None else (x + np.float32(0.5) * delta).astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
    expected = scaled * weight + (0.0 if bias is None else bias)
    if n > 2:  # of two values the difference is all rounding
        assert np.abs(out - expected).max() < 8 * ERROR
    for row, record in zip(out, records, strict=True):
        for name, wanted in quantized(row).parts().items():
            assert read_record(record, n).parts()[name].tobytes() == wanted.tobytes(), name
    assert bad == [-1] * N_ROWS
    for isa in routes.values():
        for pool in lanes.values():
            again, again_records, _ = layer_norm(x, delta, weight, bias, isa, pool)
            assert again.tobytes() == out.tobytes()
            assert again_records.tobytes() == records.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_layer_norm_notes_the_layer_of_values_that_are_not_finite(value: float, lanes: dict[int, LanePool]) -> None:
    x = np.ones((N_ROWS, 33), np.float32)
    x[2, 32] = value
    out, _, bad = layer_norm(x, None, np.ones(33), None, SCALAR, lanes[1])
    assert bad == [-1, -1, 4, -1, -1]
    assert not np.isfinite(out[2, 32])
    assert (out[[0, 1, 3, 4]] == 0).all()  # all values equal


def test_layer_norm_refuses_a_bias_of_another_width(lanes: dict[int, LanePool]) -> None:
    with pytest.raises(RuntimeError, match="weight columns is 31, allowed 33"):
        layer_norm(np.ones((1, 33), np.float32), None, np.ones(33), np.ones(31), SCALAR, lanes[1])


# ---- embeddings


class EmbedPlan(SmallPlan):
    """EMBED over 8 tokens with tables of positions (n_positions, 32) and of types."""

    def __init__(self, pool: LanePool, *, n_positions: int | None, n_types: int | None, scale: float = 1.0) -> None:
        super().__init__(max_tokens=6, n_vocab=8)
        rng = np.random.default_rng(0)
        raw, self.rows = quantized_rows(rng.standard_normal((8, 32)).astype(np.float32), TensorType.Q8_0)
        self.matrix(pool, TensorType.Q8_0, raw, 8, 32)
        weights = {0: 0}
        self.tables = [np.zeros((1, 32), np.float32)] * 2
        for slot, n in ((1, n_positions), (2, n_types)):
            if n is not None:
                self.tables[slot - 1] = rng.standard_normal((n, 32)).astype(np.float32)
                weights[slot] = self.vector(self.tables[slot - 1])
        self.out = self.place(6 * 32 * 4)
        self.add(OpKind.EMBED, out=[self.out], weight=weights, param=[scale])


@pytest.mark.parametrize(("n_positions", "n_types"), [(None, None), (7, None), (None, 2), (7, 1)])
def test_embed_adds_the_first_type_and_then_the_position(
    n_positions: int | None, n_types: int | None, lanes: dict[int, LanePool]
) -> None:
    tokens, positions, sequences = [3, 1, 7, 0, 3, 3], [2, 3, 4, 5, 6, 0], [0, 0, 0, 0, 0, 1]
    for pool in lanes.values():
        with EmbedPlan(pool, n_positions=n_positions, n_types=n_types, scale=0.5) as plan:
            plan.desc.max_sequences = 2
            plan.create()
            plan.run(pool, 6, tokens=tokens, positions=positions, sequences=sequences, block_table=[[0], [1]])
            expected = plan.rows[tokens].astype(np.float32) * np.float32(0.5) + plan.tables[1][0]
            if n_positions is not None:
                expected = expected + plan.tables[0][positions]
            assert plan.read(plan.out, (6, 32)).tobytes() == expected.astype(np.float32).tobytes()


def test_a_position_without_a_row_is_refused(lanes: dict[int, LanePool]) -> None:
    with EmbedPlan(lanes[1], n_positions=3, n_types=None) as plan:
        plan.create()
        plan.run(lanes[1], 3)
        batch = plan.batch(4)
        with pytest.raises(RuntimeError, match="token 3 has position 3, the model has 3"):
            check(LIBRARY.emel_plan_run(plan.handle, lanes[1].handle, batch.record, None))


def test_a_table_of_broken_rows_is_refused(lanes: dict[int, LanePool]) -> None:
    with EmbedPlan(lanes[1], n_positions=3, n_types=None) as plan:
        plan.ops[0].weight[1] = plan.vector(np.zeros(65))
        assert plan.try_create() == 1
        assert "values of a table (whole rows) is 65, allowed 32" in LIBRARY.emel_last_error().decode()


# ---- rows of outputs


def pooled(kind: OpKind, x: NDArray[np.float32], output_rows: list[int], isa: int, pool: LanePool) -> tuple[Any, Any]:
    """What a gather or mean writes into the arena, and into the batch's logits."""
    n_tokens, n = x.shape
    with SmallPlan(isa, max_tokens=n_tokens, max_outputs=4, max_sequences=4, n_vocab=3, output_width=n) as plan:
        source, out = plan.place(x.nbytes), plan.place(4 * n * 4)
        plan.add(kind, in_=[source], out=[out], dim=[n])
        plan.add(kind, in_=[source], out=[LOGITS], dim=[n])
        plan.create()
        plan.write(source, x)
        sequences = [0, 1, 1, 1, 1, 3]
        batch = plan.batch(
            n_tokens,
            positions=[5, 0, 1, 2, 3, 0],
            sequences=sequences,
            output_rows=output_rows,
            block_table=[[0], [1], [2], [3]],
        )
        batch.logits = np.zeros((len(output_rows), n), np.float32)
        batch.record.logits = batch.logits.ctypes.data
        check(LIBRARY.emel_plan_run(plan.handle, pool.handle, batch.record, None))
        return plan.read(out, (len(output_rows), n)), batch.logits


@pytest.mark.parametrize("n", [1, 16, 37])
def test_mean_is_that_of_the_sequence_of_each_output_row(
    n: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    x = np.random.default_rng(n).standard_normal((6, n)).astype(np.float32)
    for output_rows in ([0, 4, 5], [1], [0, 2, 3]):
        own = {0: slice(0, 1), 5: slice(5, 6)}
        expected = np.array([x[own.get(row, slice(1, 5))].astype(np.float64).mean(axis=0) for row in output_rows])
        first: bytes | None = None
        for isa in routes.values():
            for pool in lanes.values():
                means, result = pooled(OpKind.MEAN, x, output_rows, isa, pool)
                assert means.tobytes() == result.tobytes()
                assert np.abs(means - expected).max() < 1e-6
                assert first in (None, means.tobytes())
                first = means.tobytes()


def test_gathered_rows_may_be_the_result(lanes: dict[int, LanePool]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    for pool in lanes.values():
        rows, result = pooled(OpKind.GATHER, x, [1, 5], SCALAR, pool)
        assert np.array_equal(rows, x[[1, 5]])
        assert np.array_equal(result, x[[1, 5]])


@pytest.mark.parametrize("kind", [OpKind.GATHER, OpKind.MEAN])
def test_a_result_of_another_width_is_refused(kind: OpKind) -> None:
    with SmallPlan(n_vocab=8, output_width=16) as plan:
        plan.add(kind, in_=[plan.place(32 * 4)], out=[LOGITS], dim=[32])
        assert plan.try_create() == 1
        assert "output width is 32, allowed 16" in LIBRARY.emel_last_error().decode()


def test_an_argmax_needs_logits_of_the_vocabulary() -> None:
    with SmallPlan(n_vocab=8, output_width=16) as plan:
        plan.add(OpKind.ARGMAX, dim=[8], flags=OpFlag.OUTPUT_ROWS)
        assert plan.try_create() == 1
        assert "output width is 8, allowed 16" in LIBRARY.emel_last_error().decode()
