"""The end of a step: logits of the output rows, and the most likely token of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from emel._native.abi import LOGITS, OpFlag, OpKind
from emel.tensor.types import TensorType
from native.small_plan import SmallPlan

if TYPE_CHECKING:
    from emel.kernel.pool import LanePool

Array = NDArray[np.float32]


def logits_plan(isa: int, pool: LanePool, rows: Array, vocabulary: Array) -> tuple[Array, list[int]]:
    """Logits and argmax of output rows by MATMUL into the batch's logits and ARGMAX."""
    n, (n_vocab, cols) = len(rows), vocabulary.shape
    with SmallPlan(isa, max_tokens=n, max_outputs=n, n_vocab=n_vocab) as plan:
        source = plan.place(rows.nbytes)
        op = plan.add(OpKind.MATMUL, in_=[source], out=[LOGITS], dim=[cols, 1], flags=OpFlag.OUTPUT_ROWS)
        op.weight[0] = plan.matrix(pool, TensorType.F32, vocabulary.tobytes(), n_vocab, cols)
        plan.add(OpKind.ARGMAX, dim=[n_vocab])
        plan.create()
        plan.write(source, rows)
        batch = plan.run(pool, n, output_rows=range(n))
        return batch.logits, batch.argmax.tolist()


@pytest.mark.parametrize("n_vocab", [1, 2, 15, 16, 17, 31, 33, 100])
def test_argmax_is_the_lowest_index_of_the_largest(
    n_vocab: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """Identity rows: logits[i] is value i, so every place of a largest, and of a second one behind it, is seen."""
    rng = np.random.default_rng(n_vocab)
    values = rng.integers(-5, 5, (16, n_vocab)).astype(np.float32)
    values[0] = -3e38
    values[1] = 0.0
    for row, at in enumerate(rng.integers(0, n_vocab, 8), 4):
        values[row, at:] = 7.0
    for isa in routes.values():
        logits, argmax = logits_plan(isa, lanes[1], values, np.eye(n_vocab, dtype=np.float32))
        assert np.array_equal(logits, values)
        assert argmax == values.argmax(axis=1).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_argmax_of_a_row_that_is_not_finite_is_none(
    bad: float, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    n_vocab = 37
    for at in (0, 15, 16, 36):
        rows = np.random.default_rng(at).standard_normal((3, n_vocab)).astype(np.float32)
        good = rows.argmax(axis=1)
        rows[1, at] = bad
        for isa in routes.values():
            with np.errstate(invalid="ignore"):
                _, argmax = logits_plan(isa, lanes[1], rows, np.eye(n_vocab, dtype=np.float32))
            assert argmax == [good[0], -1, good[2]]


def test_gather_takes_the_output_rows_in_order(lanes: dict[int, LanePool]) -> None:
    values = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float32)
    for rows in ([], [0], [6], [1, 2, 5], range(7)):
        with SmallPlan(max_tokens=7, max_outputs=7) as plan:
            x, out = plan.place(values.nbytes), plan.place(values.nbytes)
            plan.add(OpKind.GATHER, in_=[x], out=[out], dim=[33])
            plan.create()
            plan.write(x, values)
            plan.run(lanes[3], 7, output_rows=rows)
            assert np.array_equal(plan.read(out, (len(rows), 33)), values[list(rows)])
            assert not plan.read(out, (7, 33))[len(rows) :].any()
