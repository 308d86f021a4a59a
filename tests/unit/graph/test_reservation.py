from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from emel._native import LIBRARY, abi
from emel.graph.batch import Batch, Outputs
from emel.graph.errors import GraphError
from emel.graph.reservation import ReservedGraph

if TYPE_CHECKING:
    from emel.graph.capacity import Capacity
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool
    from unit.graph.tiny import Tiny

SCALAR = int(abi.Isa.SCALAR)


def test_reservation_raises_what_went_wrong_and_stays_usable(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    with ReservedGraph(tiny.build, weights, capacity, pool=pool, route=SCALAR) as graph:
        batch.add_token(99, 0, 0)
        with pytest.raises(GraphError, match="the native run was refused"):
            graph.compute(batch)
        batch.clear()
        batch.add_token(9, 0, 0)
        graph.compute(batch)
        assert 0 <= batch.argmax[0] < batch.n_vocab


def test_reservation_is_refused_for_a_bad_graph(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, pool: LanePool
) -> None:
    with pytest.raises(GraphError, match="breaks the rule"):
        ReservedGraph(lambda: replace(tiny.build(), n_kv_layers=9), weights, capacity, pool=pool, route=SCALAR)


def test_reservation_takes_another_batch_or_extract(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    taken: list[int] = []
    with ReservedGraph(tiny.build, weights, capacity, pool=pool, route=SCALAR) as graph:
        other = Batch(capacity, batch.n_vocab, batch.kv)
        for each in (batch, other):
            each.add([4, 2], 0, 0, outputs=Outputs.LAST)
            graph.compute(each, lambda done: taken.append(done.argmax[0]))
        graph.compute(batch)
        assert taken == [batch.argmax[0], other.argmax[0]]
        other.close()


def test_reservation_survives_an_interrupt_in_the_midst_of_a_run(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    def interrupt(_batch: Batch) -> None:
        raise KeyboardInterrupt

    with ReservedGraph(tiny.build, weights, capacity, pool=pool, route=SCALAR) as graph:
        batch.add_token(9, 0, 0)
        with pytest.raises(KeyboardInterrupt):
            graph.compute(batch, interrupt)
        graph.compute(batch)
        assert graph.machine.context.error is None


def test_decode_steps_leave_no_memory_behind(
    tiny: Tiny, weights: PackedWeights, capacity: Capacity, batch: Batch, pool: LanePool
) -> None:
    with ReservedGraph(tiny.build, weights, capacity, pool=pool, route=SCALAR) as graph:

        def steps(begin: int, end: int) -> None:
            for position in range(begin, end):
                batch.clear()
                batch.add_token(position % 50, position, 0)
                graph.compute(batch)

        def traced(begin: int, end: int) -> tuple[int, int]:
            """How many bytes Python kept over these steps, and held at most."""
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            steps(begin, end)
            after, peak = tracemalloc.get_traced_memory()
            return after - before, peak - before

        steps(0, 8)
        native = LIBRARY.emel_allocation_count()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            kept, held = zip(*(traced(begin, begin + 16) for begin in range(8, 56, 16)), strict=True)
        finally:
            tracemalloc.stop()
            gc.enable()
        assert LIBRARY.emel_allocation_count() == native
        # What is traced is the whole process, and an interpreter keeps things of its own now and then: what each step
        # leaves behind is left in every round, so the least of them counts.
        assert min(kept) < 16 * 8
        assert min(held) < 4096
