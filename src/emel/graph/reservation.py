"""ReservedGraph: the graph machine and its children wired up, with errors raised instead of kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.lifecycle import Lifecycle
from emel.graph.machine import ComputeReserved, GraphContext, GraphMachine, Reserve
from emel.graph.processor import ProcessorContext, ProcessorMachine

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from emel.graph.batch import Batch
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph
    from emel.graph.plan import Plan, WeightSource
    from emel.kernel.pool import LanePool


class ReservedGraph:
    """A graph planned once for batches of up to `capacity`, with the weights at hand; a context manager.

    GraphError or NativeError when it cannot be planned. One thread at a time. Weights and pool belong to the caller and
    must outlive it.
    """

    __slots__ = ("_event", "_machine", "_weights")

    def __init__(
        self,
        build: Callable[[], Graph],
        weights: WeightSource,
        capacity: Capacity,
        *,
        pool: LanePool,
        route: int,
    ) -> None:
        processor = ProcessorMachine(ProcessorContext(pool, Lifecycle()))
        self._machine = GraphMachine(GraphContext(processor, route))
        self._weights = weights
        self._event: ComputeReserved | None = None
        self._machine.dispatch(Reserve(build, weights, capacity))
        if self._machine.context.error is not None:
            raise self._machine.context.error

    @property
    def machine(self) -> GraphMachine:
        """The machine, for tracing."""
        return self._machine

    @property
    def plan(self) -> Plan:
        """The reserved plan."""
        plan = self._machine.context.plan
        assert plan is not None
        return plan

    def compute(self, batch: Batch, extract: Callable[[Batch], None] | None = None) -> None:
        """Runs a batch: the path of every token. Raises what went wrong; the reservation stays usable."""
        event = self._event
        if event is None or event.batch is not batch or event.extract is not extract:
            self._event = event = ComputeReserved(self._weights, batch, extract)
        self._machine.dispatch(event)
        error = self._machine.context.error
        if error is not None:
            raise error

    def close(self) -> None:
        """Gives the plan and its arena back; harmless when repeated."""
        self.plan.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
