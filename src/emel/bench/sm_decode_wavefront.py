"""The suite `decode_wavefront`: a wave of lanes as one batch, against the same work dispatched lane after lane.

Both are ComputeReserved on the same reserved plan, as every decode step is. In the rows batchN the work of a lane is to
count itself, so that they show what a dispatch costs; in gemv_batchN it is the product of a (256, 256) float32 matrix
and a vector. The logits of both ways are compared, and must be the same bits.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emel.bench.machine import counted, n_cpus
from emel.bench.sm_timing import Bar, calls_of, measure
from emel.graph.batch import Batch, KvBinding
from emel.graph.builder import GraphBuilder
from emel.graph.capacity import Capacity
from emel.graph.errors import GraphError
from emel.graph.lifecycle import Lifecycle
from emel.graph.machine import ComputeReserved, GraphContext, GraphMachine, Reserve
from emel.graph.ops import Heads
from emel.graph.processor import ProcessorContext, ProcessorMachine
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.features import choose_route
from emel.kernel.packing import Matrix, pack
from emel.kernel.pool import LanePool
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.bench.sm_timing import Line
    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights

WAVES = (1, 4, 8)
THREADS = (1, 2)
WIDTHS = {"batch": 1, "gemv_batch": 256}
BAR_ROW, BAR_THREADS = "gemv_batch8", 2
BAR = Bar(at_most_ratio=0.588)  # 1.7 times as fast as lane after lane


@dataclass(frozen=True)
class OneLinear:
    """A graph of one float32 product: the row of each token, times a (width, width) matrix."""

    width: int

    def build(self) -> Graph:
        """Writes it down."""
        b = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=self.width)
        x = b.embed(b.matrix("embedding", self.width, self.width, TensorType.F32))
        b.end_layers()
        b.logits(b.gather(x), b.matrix("output", self.width, self.width, TensorType.F32))
        return b.finish()

    def weights(self, pool: LanePool) -> PackedWeights:
        """Its two matrices, of numbers in [-1, 1) that repeat late."""
        from array import array

        n = self.width * self.width
        values = array("f", ((i * 2654435761 % 2**24) / 2**23 - 1 for i in range(2 * n)))
        return pack(
            pool,
            [
                Matrix("embedding", TensorType.F32, self.width, self.width, values[:n].tobytes()),
                Matrix("output", TensorType.F32, self.width, self.width, values[n:].tobytes()),
            ],
        )


class Waves:
    """A reserved graph with a batch of n lanes and n batches of one."""

    def __init__(self, stack: ExitStack, graph: OneLinear, n_lanes: int, n_threads: int) -> None:
        pool = stack.enter_context(LanePool(n_threads))
        weights = graph.weights(pool)
        stack.callback(weights.close)
        capacity = Capacity(max_tokens=n_lanes, max_outputs=n_lanes, max_sequences=n_lanes, n_blocks=1)
        processor = ProcessorMachine(ProcessorContext(pool, Lifecycle()))
        self.machine = GraphMachine(GraphContext(processor, choose_route().isa))
        self.machine.dispatch(Reserve(graph.build, weights, capacity))
        self.check()
        plan = self.machine.context.plan
        assert plan is not None
        stack.callback(plan.close)
        table = int32_array(n_lanes)
        memory = Memory(64)
        stack.callback(memory.close)
        kv = KvBinding(memory.address, 0, address_of(table), n_lanes, 1)
        self._kept = (table, memory)
        self.n_counted = 0
        extract = self.count if graph.width == 1 else None
        wave, *singles = (Batch(capacity, graph.width, kv) for _ in range(n_lanes + 1))
        for lane, single in enumerate(singles):
            wave.add_token(lane % graph.width, 0, lane)
            single.add_token(lane % graph.width, 0, lane)
        for batch in (wave, *singles):
            stack.callback(batch.close)
        self.wave = ComputeReserved(weights, wave, extract)
        self.singles = [ComputeReserved(weights, single, extract) for single in singles]

    def count(self, batch: Batch) -> None:
        """The work of lanes that do nothing else."""
        self.n_counted += batch.n_outputs

    def check(self) -> None:
        """Raises what the last dispatch left."""
        if self.machine.context.error is not None:
            raise self.machine.context.error

    def ways(self) -> dict[str, Callable[[object], None]]:
        """Lane after lane, and as one batch."""
        dispatch, wave, singles = self.machine.dispatch, self.wave, self.singles

        def lane_after_lane(_: object) -> None:
            for event in singles:
                dispatch(event)

        def one_batch(_: object) -> None:
            dispatch(wave)

        return {"lane after lane": lane_after_lane, "one batch": one_batch}

    def compare(self) -> None:
        """Runs both ways; GraphError unless every lane has the same bits."""
        for event in (*self.singles, self.wave):
            self.machine.dispatch(event)
            self.check()
        for lane, event in enumerate(self.singles):
            if bytes(self.wave.batch.logits(lane)) != bytes(event.batch.logits(0)):
                raise GraphError(f"lane {lane} of {len(self.singles)} has other bits in a batch than alone")


def rows() -> Iterator[tuple[str, int, int, int]]:
    """Name, width, lanes and threads of every row; no more threads than there are CPUs."""
    for kind, width in WIDTHS.items():
        for n_lanes in WAVES:
            for n_threads in THREADS:
                if n_threads <= n_cpus():
                    yield f"{kind}{n_lanes}", width, n_lanes, n_threads


def run(n_runs: int, n_warmup: int) -> list[Line]:
    """Measures every row; the ratio is the time of a way over that of lane after lane."""
    lines: list[Line] = []
    for name, width, n_lanes, n_threads in rows():
        with ExitStack() as stack:
            waves = Waves(stack, OneLinear(width), n_lanes, n_threads)
            waves.compare()
            is_judged = name == BAR_ROW and n_threads == BAR_THREADS
            lines += measure(
                f"{name}, {counted(n_threads, 'thread')}",
                {way: calls_of(call, None) for way, call in waves.ways().items()},
                n_runs,
                n_warmup,
                {"one batch": BAR} if is_judged else {},
            )
            waves.compare()
    return lines
