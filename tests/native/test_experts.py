"""Mixture of experts: choices, weights and whole layers near float64, and the same bits whoever shares the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native import LIBRARY, abi
from emel._native.abi import NONE, OpKind
from emel.tensor.types import TensorType
from native.small_plan import SmallPlan, quantized_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emel.kernel.pool import LanePool

    Array = NDArray[np.float32]

SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN = range(3)


class Routed(SmallPlan):
    """TOP_K alone: weights (rows, k) and routing."""

    def __init__(self, n_experts: int, k: int, gating: int, *, normalize: bool, isa: int, bias: Array | None) -> None:
        super().__init__(isa, max_tokens=64, n_blocks=4)
        self.n_experts, self.k = n_experts, k
        self.logits = self.place(64 * n_experts * 4)
        self.weighted = self.place(64 * k * 4)
        self.routing = self.place(LIBRARY.emel_routing_bytes(64, k, n_experts))
        weights = {} if bias is None else {0: self.vector(bias)}
        self.add(
            OpKind.TOP_K,
            in_=[self.logits],
            out=[self.weighted, self.routing],
            dim=[n_experts, k, gating, int(normalize)],
            weight=weights,
            param=[2.5],
        )
        self.create()

    def route(self, pool: LanePool, logits: Array) -> tuple[Array, NDArray[np.int32]]:
        """Weights (n, k), and the expert of each choice (n, k) as the grouping tells it."""
        n = len(logits)
        self.write(self.logits, logits)
        self.run(pool, n)
        routing = self.read(self.routing, (2 * 64 * self.k + self.n_experts + 1,), np.int32)
        places, pairs = routing[: n * self.k], routing[64 * self.k : 64 * self.k + n * self.k]
        begins = routing[128 * self.k :]
        assert np.array_equal(pairs[places], np.arange(n * self.k))  # one undoes the other
        assert (begins[0], begins[-1]) == (0, n * self.k)
        experts = np.searchsorted(begins, places, side="right") - 1
        for expert in range(self.n_experts):  # tokens ascend in each group
            assert (np.diff(pairs[begins[expert] : begins[expert + 1]]) > 0).all()
        return self.read(self.weighted, (n, self.k)), experts.reshape(n, self.k).astype(np.int32)


def exact_routing(
    logits: Array, k: int, gating: int, *, normalize: bool, bias: Array | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    scores = logits.astype(np.float64)
    if gating == SOFTMAX:
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    elif gating == SIGMOID:
        scores = 1 / (1 + np.exp(-scores))
    choices = scores if bias is None else scores + bias
    ids = np.argsort(-choices, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(scores, ids, axis=1)
    if gating == SOFTMAX_OF_CHOSEN:
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    if normalize or gating == SOFTMAX_OF_CHOSEN:
        weights /= weights.sum(axis=1, keepdims=True)
    return weights * 2.5, ids


@pytest.mark.parametrize("gating", [SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("n_experts", "k"), [(1, 1), (4, 2), (8, 8), (60, 4), (128, 8), (37, 5)])
def test_experts_are_chosen_and_weighed_as_in_float64(
    gating: int,
    normalize: bool,
    biased: bool,
    n_experts: int,
    k: int,
    routes: dict[str, int],
    lanes: dict[int, LanePool],
) -> None:
    rng = np.random.default_rng(n_experts)
    logits = (2 * rng.standard_normal((50, n_experts))).astype(np.float32)
    bias = rng.standard_normal(n_experts).astype(np.float32) / np.float32(10) if biased else None
    exact, exact_ids = exact_routing(logits, k, gating, normalize=normalize, bias=bias)
    results = []
    for isa in routes.values():
        with Routed(n_experts, k, gating, normalize=normalize, isa=isa, bias=bias) as plan:
            for pool in lanes.values():
                weights, ids = plan.route(pool, logits)
                assert np.array_equal(ids, exact_ids)
                assert np.allclose(weights, exact, rtol=2e-6, atol=0)
                results.append(weights.tobytes())
                assert plan.route(pool, logits[7:8])[0].tobytes() == weights[7:8].tobytes()
    assert len(set(results)) == 1


def test_ties_go_to_the_lowest_id(lanes: dict[int, LanePool]) -> None:
    with Routed(6, 3, SOFTMAX, normalize=True, isa=0, bias=None) as plan:
        weights, ids = plan.route(lanes[1], np.array([[1, 5, 5, 0, 5, 5], [0] * 6], np.float32))
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2]]
    assert np.allclose(weights, 2.5 / 3)


@pytest.mark.parametrize("gating", [SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN])
def test_scores_that_are_not_finite_choose_someone_and_show(gating: int, lanes: dict[int, LanePool]) -> None:
    with Routed(4, 3, gating, normalize=True, isa=0, bias=None) as plan:
        logits = np.array([[np.nan] * 4, [0, 1, 2, 3], [np.nan, 1, 2, 3]], np.float32)
        weights, ids = plan.route(lanes[3], logits)
    assert ids[0].tolist() == [0, 1, 2]
    assert ids[1].tolist() == [3, 2, 1]
    assert np.isnan(weights[0]).all()
    assert np.isfinite(weights[1]).all()
    assert np.isnan(weights[2]).any() == (gating == SOFTMAX)  # else the NaN was not chosen


class Layer(SmallPlan):
    """A whole feed-forward of experts, on (n, d) rows: gate and up, silu, down, the weighted sum."""

    def __init__(self, pool: LanePool, isa: int, type_: TensorType, shape: tuple[int, int, int, int], seed: int = 0):
        super().__init__(isa, max_tokens=40, n_blocks=4)
        rng = np.random.default_rng(seed)
        self.e, self.k, self.d, self.ff = e, k, d, ff = shape
        n, quantized = 40, type_.is_quantized
        self.meant, at = [], []
        for rows, cols in ((ff, d), (ff, d), (d, ff)):
            values = (rng.standard_normal((e * rows, cols)) / np.sqrt(cols)).astype(np.float32)
            raw, meant = quantized_rows(values, type_)
            self.meant.append(meant.reshape(e, rows, cols))
            at.append(self.matrix(pool, type_, raw, e * rows, cols))
        self.biases = [rng.standard_normal((e, rows)).astype(np.float32) / 4 for rows in (ff, ff, d)]
        bias_at = [self.vector(bias.ravel()) for bias in self.biases]
        self.x, self.logits, self.weighted = self.place(n * d * 4), self.place(n * e * 4), self.place(n * k * 4)
        routing = self.place(LIBRARY.emel_routing_bytes(n, k, e))
        gate, up, hidden = (self.place(n * k * ff * 4) for _ in range(3))
        results, self.out = self.place(n * k * d * 4), self.place(n * d * 4)
        x_q, rows_q = (self.place(m * self.record_bytes(d)) for m in (n, n * k))
        rows, hidden_q = self.place(n * k * d * 4), self.place(n * k * self.record_bytes(ff))
        self.add(OpKind.TOP_K, in_=[self.logits], out=[self.weighted, routing], dim=[e, k, SOFTMAX, 1])
        if quantized:
            self.add(OpKind.QUANTIZE, in_=[self.x], out=[x_q], dim=[d])
        source, grouped = (x_q, rows_q) if quantized else (self.x, rows)
        self.add(OpKind.EXPERT_ROWS, in_=[source, routing], out=[grouped], dim=[d, k, e, int(quantized)])
        weights = {0: at[0], 1: at[1], 4: bias_at[0], 5: bias_at[1]}
        self.add(OpKind.EXPERT_MATMUL, in_=[grouped, routing], out=[gate, up], weight=weights, dim=[d, 2, k, e])
        outs = [NONE, hidden_q] if quantized else [hidden, NONE]
        self.add(OpKind.GATED, in_=[gate, up], out=outs, dim=[ff, 0, k])
        down = hidden_q if quantized else hidden
        weights = {0: at[2], 4: bias_at[2]}
        self.add(OpKind.EXPERT_MATMUL, in_=[down, routing], out=[results], weight=weights, dim=[ff, 1, k, e])
        self.add(OpKind.EXPERT_SUM, in_=[results, routing, self.weighted], out=[self.out], dim=[d, k, e])
        self.create()

    def forward(self, pool: LanePool, x: Array, logits: Array) -> Array:
        self.write(self.x, x)
        self.write(self.logits, logits)
        self.run(pool, len(x))
        return self.read(self.out, x.shape)

    def exact(self, x: Array, logits: Array) -> NDArray[np.float64]:
        weights, ids = exact_routing(logits, self.k, SOFTMAX, normalize=True, bias=None)
        out = np.zeros(x.shape)
        for row, chosen in enumerate(ids):
            for rank, e in enumerate(chosen):
                gate, up = (self.meant[i][e] @ x[row].astype(np.float64) + self.biases[i][e] for i in range(2))
                result = self.meant[2][e] @ (gate / (1 + np.exp(-gate)) * up) + self.biases[2][e]
                out[row] += weights[row, rank] / 2.5 * result
        return out


@pytest.mark.parametrize("type_", [TensorType.F32, TensorType.F16, TensorType.Q8_0, TensorType.Q4_0])
@pytest.mark.parametrize("shape", [(4, 2, 64, 32), (16, 5, 32, 96), (3, 3, 32, 64)])
def test_a_layer_of_experts_is_near_float64_and_the_same_in_any_batch(
    type_: TensorType, shape: tuple[int, int, int, int], routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, shape[2])).astype(np.float32)
    logits = (2 * rng.standard_normal((40, shape[0]))).astype(np.float32)
    with Layer(lanes[1], 0, type_, shape) as layer:
        whole = layer.forward(lanes[1], x, logits)
        exact = layer.exact(x, logits)
    error = np.sqrt(((whole - exact) ** 2).mean() / (exact**2).mean())
    assert error < (1e-4 if type_.is_quantized else 2e-6)
    for isa in routes.values():
        with Layer(lanes[1], isa, type_, shape) as layer:
            for pool in lanes.values():
                assert np.array_equal(layer.forward(pool, x, logits), whole)
                for begin, end in ((0, 1), (1, 8), (8, 9), (9, 40)):
                    part = layer.forward(pool, x[begin:end], logits[begin:end])
                    assert np.array_equal(part, whole[begin:end])


@pytest.mark.parametrize(
    ("record", "field", "index", "value", "text"),
    [
        (0, "dim", 0, 0, "n_experts is 0, allowed 1024"),
        (0, "dim", 0, 1025, "n_experts is 1025, allowed 1024"),
        (0, "dim", 1, 0, "k is 0, allowed 4"),
        (0, "dim", 1, 5, "k is 5, allowed 4"),
        (0, "dim", 2, 3, "gating is 3, allowed 2"),
        (0, "dim", 3, 2, "dim[3] is 2, allowed 1"),
        (0, "weight", 0, 3, "weight columns is 128, allowed 4"),
        (0, "out", 0, NONE, "out[0] is"),
        (0, "out", 1, NONE, "out[1] is"),
        (0, "in_", 0, NONE, "in[0] is"),
        (1, "dim", 0, 0, "dim[0] is 0"),
        (1, "dim", 3, 2, "dim[3] is 2, allowed 1"),
        (1, "in_", 1, NONE, "in[1] is"),
        (1, "out", 0, 1 << 40, "out[0] is"),
        (2, "dim", 1, 5, "dim[1] is 5, allowed 4"),
        (2, "dim", 3, 3, "rows of all experts (16 for each, or a multiple) is 128, allowed 48"),
        (2, "dim", 0, 32, "weight columns is 64, allowed 32"),
        (2, "weight", 4, 5, "weight columns is 256, allowed 128"),
        (2, "weight", 1, 99, "weight index is 99"),
        (2, "in_", 0, NONE, "in[0] is"),
        (2, "out", 1, NONE, "out is"),
        (3, "dim", 2, 1025, "dim[2] is 1025, allowed 1024"),
        (3, "dim", 2, 900, "in[0] is"),
        (5, "in_", 2, NONE, "in[2] is"),
        (5, "out", 0, NONE, "out[0] is"),
        (5, "dim", 1, 0, "k is 0, allowed 4"),
    ],
)
def test_a_damaged_record_is_refused(
    record: int, field: str, index: int, value: int, text: str, lanes: dict[int, LanePool]
) -> None:
    with Layer(lanes[1], 0, TensorType.F32, (4, 2, 64, 32)) as layer:
        layer.close()
        getattr(layer.ops[record], field)[index] = value
        assert layer.try_create() != 0
        assert text in LIBRARY.emel_last_error().decode()


def test_a_routing_of_any_bytes_is_harmless(lanes: dict[int, LanePool]) -> None:
    """A plan may read its routing where something else lies; numbers out of range must lead nowhere else."""
    rng = np.random.default_rng(3)
    with Layer(lanes[1], 0, TensorType.F32, (4, 2, 64, 32)) as layer:
        layer.close()
        del layer.ops[0]  # nobody routes
        layer.create()
        for fill in (0x00, 0xFF, 0x7F, 0x80, None):
            layer.arena[:] = rng.integers(0, 256, layer.arena.size) if fill is None else fill
            for pool in lanes.values():
                layer.run(pool, 40)


def test_routing_has_a_size_where_it_can(lanes: dict[int, LanePool]) -> None:
    assert LIBRARY.emel_routing_bytes(3, 2, 8) == (2 * 6 + 9) * 4
    for impossible in ((0, 1, 1), (1, 0, 1), (1 << 50, 4, 8), (1, 1, 1025), (2**63, 2, 1)):
        assert LIBRARY.emel_routing_bytes(*impossible) == 0
    assert int(abi.OpKind.EXPERT_SUM) == 16
