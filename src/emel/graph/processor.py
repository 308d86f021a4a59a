"""The processor: one run of a plan over one batch, on the caller's stack from the first check to the last release.

1. validate: the counts of the batch fit the plan (the native library checks every id, position and block again).
2. prepare, allocate unless reused: the arena.
3. bind: the batch's native record points at everything the run needs.
4. lifecycle gate: the results of the last run were released; otherwise the kernel never runs.
5. kernel: one native call, no interpreter lock, no allocation; with streamed weights one for each unit of them.
6. publish, extract, release: the caller's `extract` sees the results; they are released even if it fails.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel._native import LIBRARY
from emel.graph.errors import GraphError
from emel.lazy_dataclasses import dataclass
from emel.sm import CoMachine, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.batch import Batch
    from emel.graph.lifecycle import Lifecycle
    from emel.graph.plan import Plan
    from emel.kernel.pool import LanePool


class State(Enum):
    """Where a run stands."""

    READY = "ready"
    PREPARED = "prepared"
    ALLOCATED = "allocated"
    BOUND = "bound"
    EXECUTED = "executed"
    PUBLISHED = "published"
    EXTRACTED = "extracted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Execute:
    """Run `plan` over `batch`, then hand the batch to `extract`. The same event may be dispatched again."""

    plan: Plan
    batch: Batch
    extract: Callable[[Batch], None] | None = None


@dataclass(slots=True)
class ProcessorContext:
    """What runs share, and how the last one ended."""

    pool: LanePool
    lifecycle: Lifecycle
    error: Exception | None = None
    n_runs: int = 0


def batch_fault(plan: Plan, batch: Batch) -> str:
    """What keeps the plan from running the batch, in words; empty when nothing does."""
    capacity = plan.assembly.capacity
    if not 1 <= batch.n_tokens <= capacity.max_tokens:
        return f"the batch has {batch.n_tokens} tokens, the plan runs 1 to {capacity.max_tokens}"
    if not 0 <= batch.n_outputs <= min(batch.n_tokens, capacity.max_outputs):
        limit = min(batch.n_tokens, capacity.max_outputs)
        return f"the batch wants {batch.n_outputs} outputs, {batch.n_tokens} tokens in this plan can have 0 to {limit}"
    if not 1 <= batch.n_sequences <= capacity.max_sequences:
        return f"the batch has {batch.n_sequences} sequences, the plan runs 1 to {capacity.max_sequences}"
    if batch.n_vocab != plan.output_width:
        return f"the batch has room for {batch.n_vocab} logits, the plan writes {plan.output_width}"
    return ""


def is_valid(_context: ProcessorContext, event: Execute) -> bool:
    """The batch fits the plan."""
    return not batch_fault(event.plan, event.batch)


def is_reused(_context: ProcessorContext, event: Execute) -> bool:
    """The arena of an earlier run is there."""
    return event.plan.has_arena


def may_run(context: ProcessorContext, event: Execute) -> bool:
    """The lifecycle gate is open, and the plan's weights are in memory."""
    return event.plan.stages is None and not context.lifecycle.is_filled


def may_run_staged(context: ProcessorContext, event: Execute) -> bool:
    """The lifecycle gate is open, and the plan's weights are streamed."""
    return event.plan.stages is not None and not context.lifecycle.is_filled


def has_failed(context: ProcessorContext, _event: Execute) -> bool:
    """The last step left an error."""
    return context.error is not None


def prepare(context: ProcessorContext, _event: Execute) -> None:
    """Forgets how the last run ended."""
    context.error = None


def refuse_batch(context: ProcessorContext, event: Execute) -> None:
    """Says why the batch does not fit."""
    context.error = GraphError(batch_fault(event.plan, event.batch))


def allocate(context: ProcessorContext, event: Execute) -> None:
    """Allocates the plan's arena."""
    try:
        event.plan.ensure_arena()
    except MemoryError as error:
        context.error = error


def bind(_context: ProcessorContext, event: Execute) -> None:
    """Points the batch's native record at the arena and sets its counts."""
    event.plan.bind(event.batch)


def refuse_lifecycle(context: ProcessorContext, _event: Execute) -> None:
    """Says that results are still there."""
    context.error = GraphError("the run was not started: the results of the last one were not released")


def run_kernel(context: ProcessorContext, event: Execute) -> None:
    """The native call."""
    if event.plan.run(context.pool, event.batch):
        _note_refusal(context)
    context.n_runs += 1


def run_stages(context: ProcessorContext, event: Execute) -> None:
    """A native call for each unit of streamed weights, acquired before it."""
    plan = event.plan
    assert plan.stages is not None
    try:
        if plan.stages.run(plan, context.pool, event.batch):
            _note_refusal(context)
    except (OSError, ValueError, RuntimeError) as error:  # the file failed
        context.error = error
    context.n_runs += 1


def _note_refusal(context: ProcessorContext) -> None:
    reason = LIBRARY.emel_last_error().decode("utf-8", "replace")
    context.error = GraphError(f"the native run was refused: {reason}")


def publish(context: ProcessorContext, _event: Execute) -> None:
    """Marks the results filled."""
    context.lifecycle.publish()


def extract(context: ProcessorContext, event: Execute) -> None:
    """Lets the caller take the results; whatever it raises is this run's error."""
    if event.extract is not None:
        try:
            event.extract(event.batch)
        except Exception as error:
            context.error = error


def release(context: ProcessorContext, _event: Execute) -> None:
    """Marks the results empty: the next run may overwrite them."""
    context.lifecycle.release()


class ProcessorMachine(CoMachine[State, ProcessorContext]):
    """Runs a plan over a batch; a dispatch is True when the run succeeded, else `context.error` says why."""

    INITIAL = State.READY
    FAILED = frozenset({State.FAILED})
    TABLE = (
        #   source           event    guard       effect            destination
        Row(State.READY,     Execute, is_valid,   prepare,          State.PREPARED),
        Row(State.READY,     Execute, None,       refuse_batch,     State.FAILED),
        Row(State.FAILED,    Execute, is_valid,   prepare,          State.PREPARED),
        Row(State.FAILED,    Execute, None,       refuse_batch,     State.FAILED),
        Row(State.PREPARED,  None,    is_reused,  bind,             State.BOUND),
        Row(State.PREPARED,  None,    None,       allocate,         State.ALLOCATED),
        Row(State.ALLOCATED, None,    has_failed, None,             State.FAILED),
        Row(State.ALLOCATED, None,    None,       bind,             State.BOUND),
        Row(State.BOUND,     None,    may_run,    run_kernel,       State.EXECUTED),
        Row(State.BOUND,     None,    may_run_staged, run_stages,   State.EXECUTED),
        Row(State.BOUND,     None,    None,       refuse_lifecycle, State.FAILED),
        Row(State.EXECUTED,  None,    has_failed, release,          State.FAILED),
        Row(State.EXECUTED,  None,    None,       publish,          State.PUBLISHED),
        Row(State.PUBLISHED, None,    None,       extract,          State.EXTRACTED),
        Row(State.EXTRACTED, None,    has_failed, release,          State.FAILED),
        Row(State.EXTRACTED, None,    None,       release,          State.READY),
    )  # fmt: skip
