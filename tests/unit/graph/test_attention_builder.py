from __future__ import annotations

import pytest

from emel.graph.attention_ops import Attention, Pairing, RopeStore
from emel.graph.builder import GraphBuilder
from emel.graph.errors import GraphError
from emel.graph.ops import Heads
from emel.tensor.types import TensorType

F32 = TensorType.F32


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder(heads=Heads(2, 1, 8), n_vocab=10)


def test_builder_refuses_heads_that_do_not_fit(builder: GraphBuilder) -> None:
    x = builder.embed(builder.matrix("e", 10, 16, F32))
    narrow = builder.linear(x, builder.matrix("narrow", 8, 16, F32))
    table = builder.rope_table(builder.vector("f", 4, TensorType.F64))
    with pytest.raises(GraphError, match="rope_table: the magnitude is 0, it must be positive"):
        builder.rope_table(builder.vector("f", 4, TensorType.F64), magnitude=0)
    with pytest.raises(GraphError, match=r"rope_store: k has 16 values, .* needs 8"):
        builder.rope_store(x, x, narrow, table, pairing=Pairing.HALVES)
    with pytest.raises(GraphError, match=r"rope_store: norm 'b' has 3 values, a head 8"):
        builder.rope_store(x, narrow, narrow, table, pairing=Pairing.HALVES, q_norm=builder.vector("b", 3))
    with pytest.raises(GraphError, match=r"attention: q has 8 values, .* needs 16"):
        builder.attention(narrow, scale=1.0)
    with pytest.raises(GraphError, match=r"attention: sinks 'b' has 3 values, .* needs 2"):
        builder.attention(x, scale=1.0, sinks=builder.vector("b", 3))
    with pytest.raises(GraphError, match="attention: a window of -1 keys"):
        builder.attention(x, scale=1.0, window=-1)


def test_builder_gives_each_attention_the_layer_of_the_cache_before_it(builder: GraphBuilder) -> None:
    x = builder.embed(builder.matrix("e", 10, 16, F32))
    narrow = builder.linear(x, builder.matrix("narrow", 8, 16, F32))
    for _ in range(2):
        rotated = builder.rope_store(x, narrow, narrow, None, pairing=Pairing.ADJACENT)
        builder.attention(rotated, scale=1.0)
    graph = builder.finish()
    layers = [op.kv_layer for op in graph.operations if isinstance(op, RopeStore | Attention)]
    assert (layers, graph.n_kv_layers) == ([0, 0, 1, 1], 2)
