"""Native plans: what the library accepts, refuses, and gives back."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emel._native import LIBRARY, NativeError, abi
from emel.graph.assembler import assemble
from emel.graph.batch import Batch, KvBinding, Outputs, StateBinding
from emel.graph.capacity import Capacity
from emel.graph.errors import GraphError
from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation
from emel.graph.plan import Plan, weight_table
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.pool import LanePool
from emel.kernel.sizes import kv_bytes, state_bytes
from emel.tensor.types import TensorType
from unit.graph.interpreters import Step, run_graph
from unit.graph.tiny import F16, F32, Q8, Tiny, float_weights, pack_weights, raw_weights

if TYPE_CHECKING:
    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights

SCALAR = int(abi.Isa.SCALAR)


def test_plan_runs_close_to_the_float_graph(
    tiny: Tiny, graph: Graph, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
        plan.ensure_arena()
        batch.add([3, 1, 4, 1, 5], 0, 0, outputs=Outputs.LAST)
        plan.bind(batch)
        assert plan.run(pool, batch) == 0
    expected = run_graph(graph, float_weights(graph, raw_weights(graph)), Step([3, 1, 4, 1, 5], output_rows=[4]))[0]
    got = np.array(batch.logits(0))
    assert np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2)) < 0.05
    assert batch.argmax[0] == int(np.argmax(got))
    assert batch.bad_layer[:5].tolist() == [-1] * 5


def run_all(tiny: Tiny, capacity: Capacity, chunks: list[list[int]], n_lanes: int) -> np.ndarray:
    """The logits of every token of a sequence, fed in chunks."""
    graph = tiny.build()
    table = int32_array(4)
    table[:] = memoryview(array("i", [2, 0, 3, 1]))
    kv = Memory(kv_bytes(graph.n_kv_layers, 4, graph.heads.n_kv_heads, graph.heads.head_dim))
    binding = KvBinding(kv.address, kv.n_bytes, address_of(table), 1, 4)
    slots, state = int32_array(1), None
    if graph.n_state_layers:
        slots[0] = capacity.n_slots - 1
        memory = Memory(state_bytes(graph.n_state_layers, graph.state_width, capacity.n_slots))
        state = StateBinding(memory.address, memory.n_bytes, address_of(slots), 1)
    rows = []
    with LanePool(n_lanes) as pool:
        weights = pack_weights(graph, raw_weights(graph), pool)
        with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
            plan.ensure_arena()
            batch, position = Batch(capacity, graph.n_vocab, binding, state), 0
            for chunk in chunks:
                batch.clear()
                batch.add(chunk, position, 0, outputs=Outputs.ALL)
                plan.bind(batch)
                assert plan.run(pool, batch) == 0
                rows += [np.array(batch.logits(i)) for i in range(len(chunk))]
                position += len(chunk)
        weights.close()
    return np.array(rows)


@given(
    types=st.tuples(*[st.sampled_from([Q8, F32, F16, TensorType.Q4_0, TensorType.Q4_1])] * 8),
    cut=st.integers(1, 4),
    has_bias=st.booleans(),
    is_tied=st.booleans(),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_plan_gives_the_same_bits_for_any_chunks_sizes_and_lanes(
    types: tuple[TensorType, ...], cut: int, has_bias: bool, is_tied: bool
) -> None:
    tiny = Tiny(types=types, has_bias=has_bias, is_tied=is_tied)
    tokens = [3, 1, 4, 1, 5]
    whole = run_all(tiny, Capacity(5, 5, 1, 4), [tokens], 1)
    cut_up = run_all(tiny, Capacity(8, 8, 1, 4), [tokens[:cut], tokens[cut:]], 3)
    assert np.isfinite(whole).all()
    assert np.array_equal(whole, cut_up)


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny(norms_heads=True, rotates=False, magnitude=1.25),
        Tiny(window=2, cap=5.0, has_sinks=True, norms_results=True, logit_cap=3.0, activation=Activation.GELU_TANH),
        Tiny(norms_results=True, norms_inputs=False, residual_scale=0.25, logit_scale=0.125),
        Tiny(has_gate=False, has_shared_gate=True, has_bias=True, activation=Activation.GELU_ERF),
        Tiny(n_taps=3, has_bias=True),
        Tiny(n_experts=4, has_bias=True),
        Tiny(n_experts=4, types=(F16,) * 8, gating=Gating.SIGMOID),
        Tiny(n_experts=4, n_taps=2, gating=Gating.SOFTMAX_OF_CHOSEN, window=3),
    ],
    ids=str,
)
def test_plan_of_any_operations_gives_the_same_bits_for_any_chunks_sizes_and_lanes(tiny: Tiny) -> None:
    tokens = [3, 1, 4, 1, 5, 9, 2]
    whole = run_all(tiny, Capacity(7, 7, 1, 4, 1), [tokens], 1)
    assert np.isfinite(whole).all()
    for cut in (1, 4):
        cut_up = run_all(tiny, Capacity(8, 8, 1, 4, 3), [tokens[:cut], tokens[cut:]], 3)
        assert np.array_equal(whole, cut_up)


def test_plan_allocates_nothing_natively_when_it_runs(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
        plan.ensure_arena()
        before = LIBRARY.emel_allocation_count()
        for position in range(5):
            batch.clear()
            batch.add_token(7, position, 1)
            plan.bind(batch)
            assert plan.run(pool, batch) == 0
        assert LIBRARY.emel_allocation_count() == before


def test_plan_counts_what_ran(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
        plan.ensure_arena()
        batch.add_token(7, 0, 0)
        plan.bind(batch)
        assert plan.run(pool, batch) == 0
        ran = {kind: plan.counters.dispatches[kind] for kind in abi.OpKind}
        packed = {kind: sum(r.kind == kind for r in plan.assembly.records) for kind in abi.OpKind}
        assert ran == packed
        assert plan.counters.matmul_by_type[TensorType.Q8_0] == 7 * tiny.n_layers + 1
        assert plan.counters.fallback == 0


def test_plan_names_a_weight_that_was_not_packed(tiny: Tiny, weights: PackedWeights, capacity: Capacity) -> None:
    assembly = assemble(Tiny(has_bias=True).build, capacity)
    with pytest.raises(GraphError, match=r"the graph reads weight '0.q.bias', which was not packed"):
        weight_table(assembly, weights)


def test_plan_needs_weights_of_the_declared_size(weights: PackedWeights, capacity: Capacity) -> None:
    with pytest.raises(NativeError):
        Plan(assemble(Tiny(d_ff=128).build, capacity), weights, SCALAR)


@pytest.mark.parametrize("damage", ["offset", "kind", "weight", "segment", "width"])
def test_plan_is_refused_when_a_record_is_damaged(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, damage: str
) -> None:
    assembly = assemble(tiny.build, capacity)
    record = next(r for r in assembly.records if r.kind == abi.OpKind.MATMUL)
    if damage == "offset":
        record.out[0] = assembly.placement.n_bytes
    elif damage == "kind":
        record.kind = 99
    elif damage == "weight":
        record.weight[0] = len(assembly.graph.weights)
    elif damage == "segment":
        record.segment = 1000
    else:
        record.dim[0] += 32
    with pytest.raises(NativeError):
        Plan(assembly, weights, SCALAR)


def test_plan_refuses_an_unknown_route(tiny: Tiny, weights: PackedWeights, capacity: Capacity) -> None:
    with pytest.raises(NativeError):
        Plan(assemble(tiny.build, capacity), weights, 77)


def test_plan_needs_an_arena_before_it_is_bound(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch
) -> None:
    with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
        assert not plan.has_arena
        with pytest.raises(GraphError, match="the plan has no arena yet"):
            plan.bind(batch)


def test_plan_runs_only_once_it_is_bound_and_until_it_is_closed(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    plan = Plan(assemble(tiny.build, capacity), weights, SCALAR)
    batch.add_token(1, 0, 0)
    assert plan.run(pool, batch) != 0  # no arena bound
    plan.close()
    plan.close()
    with pytest.raises(ValueError, match="this plan is closed"):
        plan.run(pool, batch)


def test_plan_rebases_a_weight_of_the_same_shape(
    tiny: Tiny, graph: Graph, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    other = pack_weights(graph, raw_weights(graph, seed=9), pool)
    index = next(weight.index for weight in graph.weights if weight.name == "1.down")
    with Plan(assemble(tiny.build, capacity), weights, SCALAR) as plan:
        plan.ensure_arena()
        batch.add([1, 2, 3], 0, 0, outputs=Outputs.LAST)
        plan.bind(batch)
        results = []
        for source in (weights, other, weights):
            location = source.locate("1.down")
            plan.rebase(index, location.address, location.n_bytes)
            assert plan.run(pool, batch) == 0
            results.append(np.array(batch.logits(0)))
        assert np.array_equal(results[0], results[2])
        assert not np.array_equal(results[0], results[1])
        with pytest.raises(NativeError):
            plan.rebase(len(graph.weights), location.address, location.n_bytes)
    other.close()


def test_plan_is_of_a_capacity(tiny: Tiny, weights: PackedWeights, capacity: Capacity) -> None:
    small = assemble(tiny.build, replace(capacity, max_tokens=3)).placement.n_bytes
    assert small < assemble(tiny.build, capacity).placement.n_bytes
