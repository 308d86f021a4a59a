"""The assembler: from what builds a graph to placed records.

1. build: an architecture's function writes the graph down.
2. validate: the rules of graph/spec.py.
3. fuse, and validate what fusing made.
4. place: liveness, then one arena.
5. pack: the records the native library runs.
A failure at any step is one error value, and the assembler takes the next request.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.graph.allocator import Placement, find_overlap, place
from emel.graph.capacity import NATIVE_SIZES, Capacity, Sizes, value_bytes
from emel.graph.errors import GraphError
from emel.graph.fuse import fuse
from emel.graph.liveness import live_intervals
from emel.graph.records import pack_records
from emel.graph.spec import PLAN_RULES, RULES, check_rules
from emel.lazy_dataclasses import dataclass
from emel.sm import Machine, Row

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

    from emel._native import abi
    from emel.graph.ops import Graph


class State(Enum):
    """Where an assembly stands."""

    IDLE = "idle"
    BUILT = "built"
    VALIDATED = "validated"
    FUSED = "fused"
    PLACED = "placed"
    ASSEMBLED = "assembled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Assemble:
    """Assemble what `build` writes down for batches of `capacity`; the same request again is answered at once."""

    build: Callable[[], Graph]
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class Assembly:
    """A graph ready to be planned."""

    graph: Graph  # fused
    capacity: Capacity
    n_bytes: dict[int, int]  # value index -> bytes
    placement: Placement
    records: ctypes.Array[abi.Op]


@dataclass(slots=True)
class AssemblerContext:
    """The request, what was made of it so far, and how it ended."""

    sizes: Sizes = NATIVE_SIZES
    request: Assemble | None = None
    graph: Graph | None = None
    n_bytes: dict[int, int] | None = None
    placement: Placement | None = None
    assembly: Assembly | None = None
    error: GraphError | None = None
    n_assembled: int = 0


def has_failed(context: AssemblerContext, _event: Assemble) -> bool:
    """The last step left an error."""
    return context.error is not None


def is_same_request(context: AssemblerContext, event: Assemble) -> bool:
    """The assembly at hand is of this graph, and large enough."""
    return (
        context.request is not None
        and context.request.build == event.build
        and context.request.capacity.holds(event.capacity)
    )


def build_graph(context: AssemblerContext, event: Assemble) -> None:
    """Has the architecture write its graph down."""
    context.request, context.assembly, context.error = event, None, None
    try:
        context.graph = event.build()
    except ValueError as error:
        context.error = error if isinstance(error, GraphError) else GraphError(str(error))


def check_graph(context: AssemblerContext, _event: Assemble) -> None:
    """Runs the rules of a built graph."""
    _check(context, RULES)


def fuse_graph(context: AssemblerContext, _event: Assemble) -> None:
    """Rewrites the graph into what the kernels run, and runs the rules of that."""
    assert context.graph is not None
    context.graph = fuse(context.graph)
    _check(context, PLAN_RULES)


def place_values(context: AssemblerContext, event: Assemble) -> None:
    """Finds how long each storage lives and gives it bytes of the arena."""
    assert context.graph is not None
    try:
        context.n_bytes = value_bytes(context.graph, event.capacity, context.sizes)
    except ValueError as error:
        context.error = GraphError(str(error))
        return
    intervals = live_intervals(context.graph, context.n_bytes)
    context.placement = place(intervals)
    overlap = find_overlap(intervals, context.placement)
    if overlap is not None:  # cannot happen; a wrong answer would be silent
        context.error = GraphError(f"the allocator placed {overlap[0]} and {overlap[1]} on the same bytes")


def pack_graph(context: AssemblerContext, event: Assemble) -> None:
    """Packs the records."""
    assert context.graph is not None
    assert context.placement is not None
    assert context.n_bytes is not None
    records = pack_records(context.graph, context.placement, context.n_bytes)
    context.assembly = Assembly(context.graph, event.capacity, context.n_bytes, context.placement, records)
    context.n_assembled += 1


def forget_request(context: AssemblerContext, _event: Assemble) -> None:
    """Drops what a failed assembly left, so that no later request can reuse it."""
    context.request = context.graph = context.n_bytes = context.placement = context.assembly = None


def _check(context: AssemblerContext, rules: tuple[Callable[[Graph], object], ...]) -> None:
    assert context.graph is not None
    try:
        check_rules(context.graph, rules)  # type: ignore[arg-type]
    except GraphError as error:
        context.error = error


class AssemblerMachine(Machine[State, AssemblerContext]):
    """Makes records of a graph: `context.assembly`, or `context.error`."""

    INITIAL = State.IDLE
    FAILED = frozenset({State.FAILED})
    TABLE = (
        #   source           event     guard            effect          destination
        Row(State.IDLE,      Assemble, None,            build_graph,    State.BUILT),
        Row(State.FAILED,    Assemble, None,            build_graph,    State.BUILT),
        Row(State.ASSEMBLED, Assemble, is_same_request, None,           State.ASSEMBLED),
        Row(State.ASSEMBLED, Assemble, None,            build_graph,    State.BUILT),
        Row(State.BUILT,     None,     has_failed,      forget_request, State.FAILED),
        Row(State.BUILT,     None,     None,            check_graph,    State.VALIDATED),
        Row(State.VALIDATED, None,     has_failed,      forget_request, State.FAILED),
        Row(State.VALIDATED, None,     None,            fuse_graph,     State.FUSED),
        Row(State.FUSED,     None,     has_failed,      forget_request, State.FAILED),
        Row(State.FUSED,     None,     None,            place_values,   State.PLACED),
        Row(State.PLACED,    None,     has_failed,      forget_request, State.FAILED),
        Row(State.PLACED,    None,     None,            pack_graph,     State.ASSEMBLED),
    )  # fmt: skip


def assemble(build: Callable[[], Graph], capacity: Capacity, *, sizes: Sizes = NATIVE_SIZES) -> Assembly:
    """Assembles once; raises GraphError naming what is wrong with the graph."""
    context = AssemblerContext(sizes=sizes)
    AssemblerMachine(context).dispatch(Assemble(build, capacity))
    if context.assembly is None:
        assert context.error is not None
        raise context.error
    return context.assembly
