"""Activations of one plane: what every operation that quantises writes, and that nobody gets them unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native import LIBRARY
from emel._native.abi import Activations, OpKind
from native.activations import quantized, read_record
from native.small_plan import SmallPlan
from native.test_rowwise import WIDTHS, hostile_rows, on_every_route

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool


def run_op(
    kind: OpKind, x: NDArray[np.float32], isa: int, pool: LanePool
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """(rows, n) float32 and (rows, bytes) records of x, gated by ones or normed with the weight 1."""
    n_rows, n = x.shape
    with SmallPlan(isa, max_tokens=n_rows, activations=Activations.INT8) as plan:
        source, ones, out = (plan.place(x.nbytes) for _ in range(3))
        records = plan.place(n_rows * plan.record_bytes(n))
        outs = [records] if kind is OpKind.QUANTIZE else [out, records]
        op = plan.add(kind, in_=[source, ones] if kind is OpKind.GATED else [source], out=outs, dim=[n])
        if kind in {OpKind.RMS_NORM, OpKind.LAYER_NORM}:
            op.weight[0] = plan.vector(np.ones(n))
            op.param[0] = 1e-5
        plan.create()
        plan.write(source, x)
        plan.write(ones, np.ones_like(x))
        plan.run(pool, n_rows)
        result = x if kind is OpKind.QUANTIZE else plan.read(out, x.shape)
        return result, plan.read_records(records, n_rows, n)


@pytest.mark.parametrize("kind", [OpKind.QUANTIZE, OpKind.GATED, OpKind.RMS_NORM, OpKind.LAYER_NORM])
@pytest.mark.parametrize("n", [WIDTHS[0], WIDTHS[-1]])
def test_int8_records_are_what_the_contract_says(
    kind: OpKind, n: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    x = hostile_rows(n)
    result, records = on_every_route(lambda isa, pool: run_op(kind, x, isa, pool), routes, lanes)
    for row, raw in zip(result, records, strict=True):
        for name, wanted in quantized(row, 1).parts().items():
            assert read_record(raw, n, 1).parts()[name].tobytes() == wanted.tobytes(), name


def test_int8_quantises_within_half_a_quantum(lanes: dict[int, LanePool]) -> None:
    x = hostile_rows(576)[:1]
    _, records = run_op(OpKind.QUANTIZE, x, 0, lanes[1])
    record = read_record(records[0], 576, 1)
    amax = np.abs(x.reshape(-1, 32)).max(axis=1)
    error = np.abs(record.values() - x.ravel().astype(np.float64)).reshape(-1, 32)
    assert (error <= 0.505 * amax[:, None] / 127).all()
    assert max(abs(int(record.high.min())), int(record.high.max())) == 127


def test_unknown_activations_have_no_size() -> None:
    assert LIBRARY.emel_quantized_bytes(32, max(Activations) + 1) == 0


def test_a_plan_checks_room_for_the_planes_it_was_made_for() -> None:
    for activations, is_enough in ((Activations.INT16, False), (Activations.INT8, True)):
        with SmallPlan(activations=activations) as plan:
            x = plan.place(4 * 4096)
            out = plan.place(LIBRARY.emel_quantized_bytes(4096, Activations.INT8))
            plan.add(OpKind.QUANTIZE, in_=[x], out=[out], dim=[4096])
            assert (plan.try_create() == 0) is is_enough
