from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel._native import NativeError, abi
from emel.graph.errors import GraphError
from emel.graph.lifecycle import Lifecycle
from emel.graph.machine import Compute, ComputeReserved, GraphContext, GraphMachine, Reserve, State
from emel.graph.processor import ProcessorContext, ProcessorMachine
from unit.graph.tiny import Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from emel.graph.batch import Batch
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool


@pytest.fixture
def machine(pool: LanePool) -> GraphMachine:
    return GraphMachine(GraphContext(ProcessorMachine(ProcessorContext(pool, Lifecycle())), int(abi.Isa.SCALAR)))


@pytest.fixture
def one_token(batch: Batch) -> Batch:
    batch.add_token(1, 0, 0)
    return batch


def error_of(machine: GraphMachine) -> str:
    assert isinstance(machine.context.error, GraphError)
    return str(machine.context.error)


def test_machine_reserves_and_computes(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    assert machine.state is State.RESERVED
    assert machine.context.error is None
    event = ComputeReserved(weights, one_token)
    for _ in range(3):
        machine.dispatch(event)
        assert machine.context.error is None
    assert machine.context.processor.context.n_runs == 3
    assert machine.context.assembler.context.n_assembled == 1


def test_machine_rejects_computing_before_a_reservation(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    for event in (ComputeReserved(weights, one_token), Compute(tiny.build, weights, capacity, one_token)):
        machine.dispatch(event)
        assert machine.state is State.UNRESERVED
        assert error_of(machine) == "nothing is reserved: reserve the graph first"
    assert machine.context.processor.context.n_runs == 0
    assert machine.context.assembler.context.n_assembled == 0


def test_machine_rejects_other_weights(
    machine: GraphMachine,
    tiny: Tiny,
    graph: Graph,
    weights: PackedWeights,
    capacity: Capacity,
    one_token: Batch,
    pool: LanePool,
) -> None:
    other = pack_weights(graph, raw_weights(graph), pool)
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    machine.dispatch(ComputeReserved(other, one_token))
    assert machine.state is State.RESERVED
    assert "the reservation is of other weights" in error_of(machine)
    assert machine.context.processor.context.n_runs == 0
    machine.dispatch(ComputeReserved(weights, one_token))
    assert machine.context.error is None
    other.close()


def test_machine_reserves_once(machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity) -> None:
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    plan = machine.context.plan
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    assert machine.state is State.RESERVED
    assert "reserved already" in error_of(machine)
    assert machine.context.plan is plan


def test_machine_stays_unreserved_when_the_graph_is_bad(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity
) -> None:
    machine.dispatch(Reserve(lambda: replace(tiny.build(), n_kv_layers=9), weights, capacity))
    assert machine.state is State.UNRESERVED
    assert "breaks the rule" in error_of(machine)
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    assert machine.state is State.RESERVED


def test_machine_stays_unreserved_when_the_native_library_refuses(
    machine: GraphMachine, weights: PackedWeights, capacity: Capacity
) -> None:
    machine.dispatch(Reserve(Tiny(d_ff=128).build, weights, capacity))
    assert machine.state is State.UNRESERVED
    assert isinstance(machine.context.error, NativeError)


def test_machine_compute_reuses_what_is_large_enough(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    build = tiny.build
    machine.dispatch(Reserve(build, weights, capacity))
    plan = machine.context.plan
    machine.dispatch(Compute(build, weights, replace(capacity, max_tokens=4), one_token))
    assert machine.context.error is None
    assert machine.context.plan is plan
    machine.dispatch(Compute(build, weights, replace(capacity, max_tokens=9), one_token))
    assert machine.context.error is None
    assert machine.context.plan is not plan
    assert machine.context.processor.context.n_runs == 2
    assert machine.context.assembler.context.n_assembled == 2


def test_machine_compute_of_another_graph_plans_anew(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    machine.dispatch(Compute(replace(tiny, n_layers=1).build, weights, capacity, one_token))
    assert machine.context.error is None
    assert machine.context.plan is not None
    assert machine.context.plan.assembly.graph.n_layers == 1
    machine.dispatch(ComputeReserved(weights, one_token))
    assert machine.context.error is None


def test_machine_keeps_the_reservation_when_planning_anew_fails(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    plan = machine.context.plan
    for build in (lambda: replace(tiny.build(), n_kv_layers=9), Tiny(d_ff=128).build):
        machine.dispatch(Compute(build, weights, capacity, one_token))
        assert machine.state is State.RESERVED
        assert machine.context.error is not None
        assert machine.context.plan is plan
    machine.dispatch(Compute(tiny.build, weights, capacity, one_token))
    assert machine.context.error is None
    assert machine.context.plan is plan


def test_machine_hands_the_results_to_extract(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    taken: list[int] = []
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    machine.dispatch(ComputeReserved(weights, one_token, lambda batch: taken.append(batch.argmax[0])))
    machine.dispatch(ComputeReserved(weights, one_token))
    assert taken == [one_token.argmax[0]]
