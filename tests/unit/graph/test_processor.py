from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel._native import abi
from emel.graph.assembler import assemble
from emel.graph.batch import Batch, Outputs
from emel.graph.errors import GraphError
from emel.graph.lifecycle import Lifecycle
from emel.graph.plan import Plan
from emel.graph.processor import Execute, ProcessorContext, ProcessorMachine, State
from emel.sm import UnexpectedEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.capacity import Capacity
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool
    from unit.graph.tiny import Tiny


@pytest.fixture
def plan(tiny: Tiny, weights: PackedWeights, capacity: Capacity) -> Iterator[Plan]:
    with Plan(assemble(tiny.build, capacity), weights, int(abi.Isa.SCALAR)) as plan:
        yield plan


@pytest.fixture
def machine(pool: LanePool) -> ProcessorMachine:
    return ProcessorMachine(ProcessorContext(pool, Lifecycle()))


def test_processor_runs_allocating_first_and_reusing_then(machine: ProcessorMachine, plan: Plan, batch: Batch) -> None:
    event = Execute(plan, batch)
    batch.add_token(1, 0, 0)
    assert not plan.has_arena
    assert machine.dispatch(event)
    assert plan.has_arena
    arena = plan._arena
    assert machine.dispatch(event)
    assert plan._arena is arena
    assert machine.state is State.READY
    assert machine.context.n_runs == 2


def test_processor_is_complete_when_the_dispatch_returns(machine: ProcessorMachine, plan: Plan, batch: Batch) -> None:
    seen: list[int] = []
    batch.add_token(1, 0, 0)
    task = machine.dispatch_async(Execute(plan, batch, lambda b: seen.append(b.argmax[0])))
    assert seen == [batch.argmax[0]]
    assert task.result()


@pytest.mark.parametrize(
    ("tokens", "outputs", "sequences", "message"),
    [
        (0, 0, 2, "the batch has 0 tokens, the plan runs 1 to 6"),
        (7, 0, 2, "the batch has 7 tokens"),
        (1, 2, 2, "the batch wants 2 outputs, 1 tokens in this plan can have 0 to 1"),
        (5, 4, 2, "the batch wants 4 outputs, 5 tokens in this plan can have 0 to 3"),
        (1, 1, 0, "the batch has 0 sequences, the plan runs 1 to 2"),
        (1, 1, 3, "the batch has 3 sequences"),
    ],
)
def test_processor_refuses_batches_that_do_not_fit(
    machine: ProcessorMachine, plan: Plan, batch: Batch, tokens: int, outputs: int, sequences: int, message: str
) -> None:
    batch.n_tokens, batch.n_outputs, batch.n_sequences = tokens, outputs, sequences
    assert not machine.dispatch(Execute(plan, batch))
    assert machine.state is State.FAILED
    assert message in str(machine.context.error)
    assert machine.context.n_runs == 0
    assert not plan.has_arena


def test_processor_refuses_a_batch_of_another_vocabulary(machine: ProcessorMachine, plan: Plan, batch: Batch) -> None:
    batch.add_token(1, 0, 0)
    batch.n_vocab = 49
    assert not machine.dispatch(Execute(plan, batch))
    assert "room for 49 logits, the plan writes 50" in str(machine.context.error)


@pytest.mark.parametrize(("token", "position", "sequence"), [(50, 0, 0), (-1, 0, 0), (1, 64, 0), (1, -1, 0), (1, 0, 2)])
def test_processor_reports_what_the_native_library_refuses(
    machine: ProcessorMachine, plan: Plan, batch: Batch, token: int, position: int, sequence: int
) -> None:
    batch.add_token(token, position, sequence)
    assert not machine.dispatch(Execute(plan, batch))
    assert isinstance(machine.context.error, GraphError)
    assert "the native run was refused: " in str(machine.context.error)
    batch.clear()
    batch.add_token(1, 0, 0)
    assert machine.dispatch(Execute(plan, batch))
    assert machine.context.error is None


def test_processor_gate_keeps_the_kernel_from_running(machine: ProcessorMachine, plan: Plan, batch: Batch) -> None:
    machine.context.lifecycle.publish()
    batch.add_token(1, 0, 0)
    assert not machine.dispatch(Execute(plan, batch))
    assert str(machine.context.error) == "the run was not started: the results of the last one were not released"
    assert machine.context.n_runs == 0
    machine.context.lifecycle.release()
    assert machine.dispatch(Execute(plan, batch))


def test_processor_releases_its_results_although_extract_fails(
    machine: ProcessorMachine, plan: Plan, batch: Batch
) -> None:
    def fails(_batch: Batch) -> None:
        raise LookupError("no one to give it to")

    batch.add([1, 2], 0, 0, outputs=Outputs.LAST)
    assert not machine.dispatch(Execute(plan, batch, fails))
    assert machine.state is State.FAILED
    assert isinstance(machine.context.error, LookupError)
    assert not machine.context.lifecycle.is_filled
    assert machine.dispatch(Execute(plan, batch))


def test_processor_reports_a_failed_allocation(
    machine: ProcessorMachine, plan: Plan, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_n_bytes: int, *, is_huge: bool) -> None:
        raise MemoryError("cannot allocate 1 bytes")

    batch.add_token(1, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr("emel.graph.plan.Memory", refuse)
        assert not machine.dispatch(Execute(plan, batch))
    assert isinstance(machine.context.error, MemoryError)
    assert machine.dispatch(Execute(plan, batch))


def test_processor_takes_no_other_event(machine: ProcessorMachine) -> None:
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(object())
    assert machine.state is State.READY
