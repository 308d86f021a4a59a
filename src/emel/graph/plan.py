"""Plan: a native plan with its arena, sized once and run with any batch up to that size."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from emel._native import LIBRARY, abi, check
from emel.graph.errors import GraphError
from emel.graph.stages import StagedSource, Stages
from emel.kernel.buffers import Memory
from emel.kernel.sizes import routing_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from emel.graph.assembler import Assembly
    from emel.graph.batch import Batch
    from emel.graph.mixtures import Mixture
    from emel.kernel.packing import Location
    from emel.kernel.pool import LanePool


class WeightSource(Protocol):
    """Where the weights of a model lie; emel.kernel.packing.PackedWeights is one."""

    def locate(self, name: str, /) -> Location:
        """The location of a weight; KeyError for an unknown name."""


class Plan:
    """A native plan over `assembly`; the native library checks every record and refuses a bad one (NativeError).

    The weights must stay where they are until `close`. The arena is allocated by the first run (`ensure_arena`).
    """

    __slots__ = (
        "_arena",
        "_handle",
        "_weights",
        "assembly",
        "counters",
        "n_segments",
        "output_width",
        "route",
        "stages",
        "weights",
    )

    def __init__(self, assembly: Assembly, weights: WeightSource, route: int) -> None:
        graph, capacity = assembly.graph, assembly.capacity
        table = weight_table(assembly, weights)
        desc = abi.PlanDesc(
            ops=assembly.records,
            n_ops=len(assembly.records),
            weights=table,
            n_weights=len(table),
            arena_bytes=assembly.placement.n_bytes,
            max_tokens=capacity.max_tokens,
            max_outputs=capacity.max_outputs,
            max_sequences=capacity.max_sequences,
            n_kv_layers=graph.n_kv_layers,
            n_kv_heads=graph.heads.n_kv_heads,
            head_dim=graph.heads.head_dim,
            n_blocks=capacity.n_blocks,
            n_vocab=graph.n_vocab,
            isa=route,
            n_state_layers=graph.n_state_layers,
            state_width=graph.state_width,
            n_slots=capacity.n_slots,
            kv_type=capacity.kv_type,
            max_sequence_blocks=capacity.max_sequence_blocks,
            activations=capacity.activations,
            output_width=graph.output_width,
        )
        handle = ctypes.c_void_p()
        check(LIBRARY.emel_plan_create(ctypes.byref(desc), ctypes.byref(handle)))
        self._handle: ctypes.c_void_p | None = handle
        self._weights = table
        self._arena: Memory | None = None
        self.weights = weights  # keeps them alive
        self.assembly = assembly
        self.route = route
        self.n_segments = graph.n_segments
        self.output_width = graph.output_width
        self.counters = abi.Counters()
        self.stages = Stages(graph, weights) if isinstance(weights, StagedSource) else None

    @property
    def handle(self) -> ctypes.c_void_p:
        """The emel_plan; ValueError once closed."""
        if self._handle is None:
            raise ValueError("this plan is closed")
        return self._handle

    @property
    def has_arena(self) -> bool:
        """Whether the arena is allocated."""
        return self._arena is not None

    def ensure_arena(self) -> None:
        """Allocates the arena unless it is there; MemoryError when the system has not enough."""
        if self._arena is None:
            self._arena = Memory(self.assembly.placement.n_bytes, is_huge=True)

    def bind(self, batch: Batch) -> None:
        """Points the batch's record at the arena and all segments, and sets its counts."""
        if self._arena is None:
            raise GraphError("the plan has no arena yet: call ensure_arena first")
        record = batch.record
        record.arena = self._arena.address
        record.arena_bytes = self._arena.n_bytes
        record.n_tokens = batch.n_tokens
        record.n_outputs = batch.n_outputs
        record.segment_begin = 0
        record.segment_end = self.n_segments

    def run(self, pool: LanePool, batch: Batch) -> int:
        """Runs the segments a bound batch is set to on the pool's lanes; returns the emel_status, 0 for success."""
        # The property is only called where it raises: this is done for every step.
        status: int = LIBRARY.emel_plan_run(self._handle or self.handle, pool.handle, batch.reference, self.counters)
        pool.note_run()
        return status

    def rebase(self, index: int, address: int, n_bytes: int) -> None:
        """Points weight `index` at other bytes of the same type and shape, between runs."""
        check(LIBRARY.emel_plan_rebase(self.handle, index, address, n_bytes))

    def rows_of_experts(self, mixture: Mixture, batch: Batch) -> Sequence[int]:
        """How many rows of the batch go to each expert, once the router's segment ran."""
        n_experts, capacity = mixture.n_experts, self.assembly.capacity
        if self._arena is None or (mixture.is_for_outputs and not batch.n_outputs):
            return [0] * n_experts
        n_rows = capacity.max_outputs if mixture.is_for_outputs else capacity.max_tokens
        # A routing ends with the first row of each expert, and the end of the last one.
        end = self.assembly.placement.offsets[mixture.routing.index]
        end += routing_bytes(n_rows, mixture.n_used, n_experts)
        n_bytes = 4 * (n_experts + 1)
        with self._arena.view("i", end - n_bytes, n_bytes) as begins:
            return [after - begin for begin, after in pairwise(begins.tolist())]

    def close(self) -> None:
        """Destroys the plan and gives the arena back; harmless when repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            LIBRARY.emel_plan_destroy(handle)
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def weight_table(assembly: Assembly, weights: WeightSource) -> ctypes.Array[abi.Weight]:
    """The native weight table of a graph; GraphError naming a weight that `weights` does not have."""
    table = (abi.Weight * len(assembly.graph.weights))()
    for entry, weight in zip(table, assembly.graph.weights, strict=True):
        try:
            location = weights.locate(weight.name)
        except KeyError:
            raise GraphError(f"the graph reads weight {weight.name!r}, which was not packed") from None
        entry.data = location.address
        entry.n_bytes = location.n_bytes
        entry.rows = weight.rows
        entry.cols = weight.cols
        entry.type = int(weight.type)
        entry.packed = int(weight.is_packed)
    return table
