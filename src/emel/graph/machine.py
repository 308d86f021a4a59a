"""The graph machine: reserve a plan once, then compute with it.

1. Reserve assembles a graph and makes its plan. One reservation in a machine's life.
2. Compute runs a batch, assembling anew when another graph, other weights or a larger batch is asked for; if that
   fails, the old reservation stays.
3. ComputeReserved skips the assembler: the path of every token. It needs a reservation with the same weights.
A rejected request leaves its reason in `context.error` and the state as it was. So does one that failed in a way nobody
foresaw: UnknownGraphError. The processor is inline: driven by its asynchronous call, it ends within the same dispatch.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from emel.graph.assembler import Assemble, AssemblerContext, AssemblerMachine
from emel.graph.errors import GraphError, UnknownGraphError
from emel.graph.plan import Plan
from emel.graph.processor import Execute, ProcessorContext, ProcessorMachine
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row
from emel.sm.policies import INLINE
from emel.sm.task import ACCEPTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.batch import Batch
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph
    from emel.graph.plan import WeightSource


class State(Enum):
    """Whether there is a plan."""

    UNRESERVED = "unreserved"
    ASSEMBLED = "assembled"
    PLANNED = "planned"
    RESERVED = "reserved"
    REASSEMBLED = "reassembled"
    REPLANNED = "replanned"


@dataclass(frozen=True, slots=True)
class Reserve:
    """Plan what `build` writes down, with these weights, for batches of up to `capacity`."""

    build: Callable[[], Graph]
    weights: WeightSource
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a batch of this graph; `capacity` is what the plan must hold."""

    build: Callable[[], Graph]
    weights: WeightSource
    capacity: Capacity
    batch: Batch
    extract: Callable[[Batch], None] | None = None


@dataclass(frozen=True, slots=True)
class ComputeReserved:
    """Run a batch on the reserved plan. The same event may be dispatched again."""

    weights: WeightSource
    batch: Batch
    extract: Callable[[Batch], None] | None = None


@dataclass(slots=True)
class GraphContext:
    """The children, the reservation, and how the last request ended."""

    processor: ProcessorMachine
    route: int
    assembler: AssemblerMachine = field(default_factory=lambda: AssemblerMachine(AssemblerContext()))
    plan: Plan | None = None
    build: Callable[[], Graph] | None = None  # what the plan is of
    error: Exception | None = None
    execute: Execute | None = None  # the last event, sent again when the same batch comes again

    def __post_init__(self) -> None:
        if self.processor.scheduler is not INLINE:
            policy = type(self.processor.scheduler).__name__
            raise GraphError(f"the processor is under {policy}: a graph ends its runs itself and needs an inline one")


def has_failed(context: GraphContext, _event: object) -> bool:
    """The last step left an error."""
    return context.error is not None


def has_same_weights(context: GraphContext, event: ComputeReserved) -> bool:
    """The reservation is of these very weights."""
    return context.plan is not None and event.weights is context.plan.weights


def is_reserved(context: GraphContext, event: Compute) -> bool:
    """The reservation is of this graph and these weights, and large enough."""
    return (
        context.plan is not None
        and event.weights is context.plan.weights
        and event.build == context.build
        and context.plan.assembly.capacity.holds(event.capacity)
    )


def assemble(context: GraphContext, event: Reserve | Compute) -> None:
    """Has the assembler make the placed records."""
    context.assembler.dispatch(Assemble(event.build, event.capacity))
    context.error = context.assembler.context.error


def make_plan(context: GraphContext, event: Reserve | Compute) -> None:
    """Has the native library check and take the records; a plan there was is closed only when that succeeded."""
    assembly = context.assembler.context.assembly
    assert assembly is not None
    try:
        plan = Plan(assembly, event.weights, context.route)
    except (ValueError, RuntimeError) as error:
        context.error = error
        return
    if context.plan is not None:
        context.plan.close()
    context.plan, context.build = plan, event.build
    context.execute = None


def run(context: GraphContext, event: Compute | ComputeReserved) -> None:
    """Has the processor run the batch; it is at rest, and its output there, before the task's result is read."""
    execute = context.execute
    if execute is None or execute.batch is not event.batch or execute.extract is not event.extract:
        assert context.plan is not None
        context.execute = execute = Execute(context.plan, event.batch, event.extract)
    try:
        task = context.processor.dispatch_async(execute)
        is_accepted = task is ACCEPTED or task.result()  # most runs are over by now, and need not be asked
    except BaseException as error:
        context.processor = _at_rest(context.processor)
        if not isinstance(error, Exception):  # an interrupt
            raise
        context.error = UnknownGraphError(f"the run broke off with an error nobody foresaw: {error!r}")
        context.error.__cause__ = error
    else:
        context.error = None if is_accepted else _reason(context.processor)


def _at_rest(broken: ProcessorMachine) -> ProcessorMachine:
    """Takes the place of a processor that an exception left between two states; its results are released."""
    broken.context.lifecycle.release()
    context = ProcessorContext(broken.context.pool, broken.context.lifecycle, n_runs=broken.context.n_runs)
    return ProcessorMachine(context)


def _reason(processor: ProcessorMachine) -> Exception:
    """Why a run was not accepted."""
    return processor.context.error or UnknownGraphError("the run failed and left no reason")


def reject_unreserved(context: GraphContext, _event: object) -> None:
    """Nothing can be computed yet."""
    context.error = GraphError("nothing is reserved: reserve the graph first")


def reject_second(context: GraphContext, _event: Reserve) -> None:
    """One reservation in a machine's life."""
    context.error = GraphError("the graph is reserved already: compute with it, or make another machine")


def reject_other_weights(context: GraphContext, _event: ComputeReserved) -> None:
    """The plan reads other memory."""
    context.error = GraphError("the reservation is of other weights: compute with those it was reserved with")


class GraphMachine(Machine[State, GraphContext]):
    """Makes a plan once and computes with it; why a request was rejected is in `context.error`."""

    INITIAL = State.UNRESERVED
    TABLE = (
        #   source             event            guard             effect                destination
        Row(State.UNRESERVED,  Reserve,         None,             assemble,             State.ASSEMBLED),
        Row(State.UNRESERVED,  Compute,         None,             reject_unreserved,    State.UNRESERVED),
        Row(State.UNRESERVED,  ComputeReserved, None,             reject_unreserved,    State.UNRESERVED),
        Row(State.ASSEMBLED,   None,            has_failed,       None,                 State.UNRESERVED),
        Row(State.ASSEMBLED,   None,            None,             make_plan,            State.PLANNED),
        Row(State.PLANNED,     None,            has_failed,       None,                 State.UNRESERVED),
        Row(State.PLANNED,     None,            None,             None,                 State.RESERVED),
        Row(State.RESERVED,    ComputeReserved, has_same_weights, run,                  State.RESERVED),
        Row(State.RESERVED,    ComputeReserved, None,             reject_other_weights, State.RESERVED),
        Row(State.RESERVED,    Compute,         is_reserved,      run,                  State.RESERVED),
        Row(State.RESERVED,    Compute,         None,             assemble,             State.REASSEMBLED),
        Row(State.RESERVED,    Reserve,         None,             reject_second,        State.RESERVED),
        Row(State.REASSEMBLED, None,            has_failed,       None,                 State.RESERVED),
        Row(State.REASSEMBLED, None,            None,             make_plan,            State.REPLANNED),
        Row(State.REPLANNED,   None,            has_failed,       None,                 State.RESERVED),
        Row(State.REPLANNED,   None,            None,             run,                  State.RESERVED),
    )  # fmt: skip
