from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel._native import NativeError, abi
from emel.graph.errors import GraphError, UnknownGraphError
from emel.graph.lifecycle import Lifecycle
from emel.graph.machine import Compute, ComputeReserved, GraphContext, GraphMachine, Reserve, State
from emel.graph.processor import Execute, ProcessorContext, ProcessorMachine
from emel.graph.processor import State as ProcessorState
from emel.sm.fifo import FifoPolicy
from emel.sm.task import REJECTED
from unit.graph.tiny import Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.batch import Batch
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool
    from emel.sm.task import Task


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


class WatchedProcessor(ProcessorMachine):
    """Calls `look` between the asynchronous dispatch and the reading of its result."""

    look: Callable[[], None]

    def dispatch_async(self, event: object) -> Task:
        task = super().dispatch_async(event)
        self.look()
        return task


def test_machine_has_output_and_callbacks_before_the_result_is_read(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch, pool: LanePool
) -> None:
    events: list[str] = []
    processor = WatchedProcessor(ProcessorContext(pool, Lifecycle()))
    machine = GraphMachine(GraphContext(processor, int(abi.Isa.SCALAR)))
    machine.dispatch(Reserve(tiny.build, weights, capacity))

    def look() -> None:
        assert machine.is_running
        assert not processor.is_running
        assert processor.state is ProcessorState.READY
        assert not processor.context.lifecycle.is_filled
        assert one_token.argmax[0] == max(range(50), key=list(one_token.logits(0)).__getitem__)
        events.append("result")

    processor.look = look
    one_token.argmax[0] = -7
    machine.dispatch(ComputeReserved(weights, one_token, lambda batch: events.append(f"extract {batch.argmax[0]}")))
    assert machine.context.error is None
    assert events == [f"extract {one_token.argmax[0]}", "result"]


def test_machine_takes_an_inline_processor_only(pool: LanePool) -> None:
    processor = ProcessorMachine(ProcessorContext(pool, Lifecycle()), FifoPolicy())
    with pytest.raises(GraphError, match=r"the processor is under FifoPolicy: .* needs an inline one"):
        GraphContext(processor, int(abi.Isa.SCALAR))


def test_machine_classifies_errors_nobody_foresaw(
    machine: GraphMachine,
    tiny: Tiny,
    weights: PackedWeights,
    capacity: Capacity,
    one_token: Batch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Exception):
        pass

    def break_off(_lifecycle: Lifecycle) -> None:
        raise Broken("halfway")

    machine.dispatch(Reserve(tiny.build, weights, capacity))
    lifecycle, pool = machine.context.processor.context.lifecycle, machine.context.processor.context.pool
    event = ComputeReserved(weights, one_token)
    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "publish", break_off)
        machine.dispatch(event)
    assert machine.state is State.RESERVED
    assert isinstance(machine.context.error, UnknownGraphError)
    assert isinstance(machine.context.error.__cause__, Broken)
    assert str(machine.context.error) == "the run broke off with an error nobody foresaw: Broken('halfway')"
    machine.dispatch(event)
    assert machine.context.error is None
    processor = machine.context.processor
    assert (processor.context.lifecycle, processor.context.pool, processor.context.n_runs) == (lifecycle, pool, 2)


def test_machine_releases_the_results_of_a_run_that_broke_off(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    def interrupt(_batch: Batch) -> None:
        raise KeyboardInterrupt

    machine.dispatch(Reserve(tiny.build, weights, capacity))
    with pytest.raises(KeyboardInterrupt):
        machine.dispatch(ComputeReserved(weights, one_token, interrupt))
    assert machine.state is State.RESERVED
    assert not machine.context.processor.context.lifecycle.is_filled
    machine.dispatch(ComputeReserved(weights, one_token))
    assert machine.context.error is None


def test_machine_keeps_what_extract_raised(
    machine: GraphMachine, tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch
) -> None:
    error = LookupError("no one to give it to")

    def fails(_batch: Batch) -> None:
        raise error

    machine.dispatch(Reserve(tiny.build, weights, capacity))
    machine.dispatch(ComputeReserved(weights, one_token, fails))
    assert machine.context.error is error
    assert not machine.context.processor.context.lifecycle.is_filled


class SilentProcessor(ProcessorMachine):
    """Fails without a reason."""

    def dispatch_async(self, event: object) -> Task:
        assert isinstance(event, Execute)
        return REJECTED


def test_machine_takes_no_failure_without_a_reason_for_success(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, one_token: Batch, pool: LanePool
) -> None:
    processor = SilentProcessor(ProcessorContext(pool, Lifecycle()))
    machine = GraphMachine(GraphContext(processor, int(abi.Isa.SCALAR)))
    machine.dispatch(Reserve(tiny.build, weights, capacity))
    machine.dispatch(ComputeReserved(weights, one_token))
    assert isinstance(machine.context.error, UnknownGraphError)
    assert str(machine.context.error) == "the run failed and left no reason"
