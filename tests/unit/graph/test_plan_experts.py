"""What a plan says of its routings between two segments: how many rows go to each expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel._native import abi
from emel.graph.assembler import assemble
from emel.graph.batch import Batch, KvBinding, Outputs
from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.plan import Plan
from unit.graph.tiny import Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph
    from emel.kernel.pool import LanePool

TINY = Tiny(n_experts=4, n_chosen=2)  # its last layer computes output rows alone
TOKENS = [3, 1, 4, 1, 5]


def build() -> Graph:
    return cut_behind_routers(TINY.build())


def test_rows_of_experts_are_known_behind_the_router(capacity: Capacity, binding: KvBinding, pool: LanePool) -> None:
    graph = build()
    weights = pack_weights(graph, raw_weights(graph), pool)
    batch = Batch(capacity, graph.n_vocab, binding)
    with Plan(assemble(build, capacity), weights, int(abi.Isa.SCALAR)) as plan:
        first, last = mixtures_of(plan.assembly.graph.operations)
        assert (first.is_for_outputs, last.is_for_outputs) == (False, True)
        assert plan.rows_of_experts(first, batch) == [0] * 4  # without an arena nobody chose
        plan.ensure_arena()
        routers = [1, 3]
        for outputs, n_outputs in ((Outputs.ALL, 3), (Outputs.LAST, 1), (Outputs.NONE, 0)):
            tokens = TOKENS[: capacity.max_outputs] if outputs is Outputs.ALL else TOKENS
            batch.clear()
            batch.add(tokens, 0, 0, outputs=outputs)
            plan.bind(batch)
            for begin, router, mixture, n_rows in zip(
                (0, 2), routers, (first, last), (len(tokens), n_outputs), strict=True
            ):
                batch.record.segment_begin, batch.record.segment_end = begin, router + 1
                assert plan.run(pool, batch) == 0
                counts = plan.rows_of_experts(mixture, batch)
                assert sum(counts) == n_rows * TINY.n_chosen
                assert len(counts) == 4
                assert all(0 <= n <= n_rows for n in counts)
    weights.close()


def test_the_cut_graph_gives_the_bits_of_the_whole_one(capacity: Capacity, binding: KvBinding, pool: LanePool) -> None:
    graph = TINY.build()
    weights = pack_weights(graph, raw_weights(graph), pool)
    found = []
    for how in (TINY.build, build):
        batch = Batch(capacity, graph.n_vocab, binding)
        with Plan(assemble(how, capacity), weights, int(abi.Isa.SCALAR)) as plan:
            plan.ensure_arena()
            batch.add(TOKENS, 0, 0, outputs=Outputs.LAST)
            plan.bind(batch)
            assert plan.run(pool, batch) == 0
            found.append(batch.logits(0).tolist())
    weights.close()
    assert found[0] == found[1]
