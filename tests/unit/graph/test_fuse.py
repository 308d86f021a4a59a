from __future__ import annotations

from typing import TypeVar

from emel.graph import ops
from emel.graph.builder import GraphBuilder
from emel.graph.fuse import fuse
from emel.graph.ops import Heads
from unit.graph.tiny import F32, Q8, Tiny

O = TypeVar("O", bound=ops.Operation)  # noqa: E741


def of_kind(graph: ops.Graph, kind: type[O]) -> list[O]:
    return [operation for operation in graph.operations if isinstance(operation, kind)]


def test_fuse_folds_every_sum_into_the_norm_behind_it() -> None:
    fused = fuse(Tiny(n_layers=3).build())
    assert of_kind(fused, ops.Add) == []
    norms = of_kind(fused, ops.RmsNorm)
    assert [norm.delta is not None for norm in norms] == [False, True, True, True, True, True, True]


def test_fuse_leaves_a_sum_that_no_norm_reads_first() -> None:
    builder = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=32)
    x = builder.embed(builder.matrix("e", 32, 32, Q8))
    total = builder.add(x, builder.linear(x, builder.matrix("w", 32, 32, Q8)))
    builder.linear(total, builder.matrix("v", 32, 32, Q8))
    builder.rms_norm(total, builder.vector("n", 32), 1e-5)
    kinds = [type(operation) for operation in fuse(builder.finish()).operations]
    assert kinds == [ops.Embed, ops.Quantize, ops.Linear, ops.Add, ops.Quantize, ops.Linear, ops.RmsNorm]


def test_fuse_keeps_a_sum_that_nothing_reads() -> None:
    builder = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=32)
    x = builder.embed(builder.matrix("e", 32, 32, F32))
    builder.add(x, builder.linear(x, builder.matrix("w", 32, 32, F32)))
    assert isinstance(fuse(builder.finish()).operations[-1], ops.Add)


def test_fuse_quantises_a_value_once_for_all_its_readers() -> None:
    builder = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=32)
    x = builder.embed(builder.matrix("e", 32, 32, Q8))
    one = builder.linear(x, builder.matrix("a", 32, 32, Q8))
    builder.gated(one, one)
    builder.linear(x, builder.matrix("b", 32, 32, Q8))
    fused = fuse(builder.finish())
    (quantize,) = of_kind(fused, ops.Quantize)
    assert [linear.x for linear in of_kind(fused, ops.Linear)] == [quantize.out, quantize.out]


def test_fuse_keeps_f32_only_for_those_who_read_it() -> None:
    mixed = fuse(Tiny(n_layers=1, types=(Q8, F32, Q8, Q8, Q8, Q8, F32, Q8)).build())
    first, second, last = of_kind(mixed, ops.RmsNorm)
    assert first.out is not None
    assert first.quantized is not None
    assert second.out is None
    assert last.out is None
    (gated,) = of_kind(mixed, ops.Gated)
    assert gated.out is not None
    assert gated.quantized is None


def test_fuse_joins_no_more_than_four_matrices() -> None:
    builder = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=32)
    x = builder.embed(builder.matrix("e", 32, 32, Q8))
    for index in range(6):
        builder.linear(x, builder.matrix(f"w{index}", 32, 32, Q8))
    assert [len(linear.parts) for linear in of_kind(fuse(builder.finish()), ops.Linear)] == [4, 2]


def test_fuse_joins_nothing_across_segments_and_never_the_logits() -> None:
    builder = GraphBuilder(heads=Heads(1, 1, 32), n_vocab=32)
    x = builder.gather(builder.embed(builder.matrix("e", 32, 32, Q8)))
    builder.linear(x, builder.matrix("a", 32, 32, Q8))
    builder.begin_layer()
    builder.linear(x, builder.matrix("b", 32, 32, Q8))
    builder.logits(x, builder.matrix("e", 32, 32, Q8))
    assert [len(linear.parts) for linear in of_kind(fuse(builder.finish()), ops.Linear)] == [1, 1, 1]


def test_fuse_is_idempotent() -> None:
    once = fuse(Tiny(n_layers=2).build())
    assert fuse(once).operations == once.operations
