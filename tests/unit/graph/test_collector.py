"""What a graph is collected in, by way of the builder that is one."""

from __future__ import annotations

import pytest

from emel.graph.builder import GraphBuilder
from emel.graph.errors import GraphError
from emel.graph.ops import Heads
from emel.tensor.types import TensorType

F32 = TensorType.F32


@pytest.fixture
def builder() -> GraphBuilder:
    return GraphBuilder(heads=Heads(2, 1, 8), n_vocab=10)


def test_collector_gives_a_name_one_weight(builder: GraphBuilder) -> None:
    first = builder.matrix("w", 4, 8, F32)
    assert builder.matrix("w", 4, 8, F32) is not None
    assert builder.vector("v", 8).index == 1
    assert builder.finish().weights == (first, builder.vector("v", 8))


def test_collector_refuses_a_name_with_another_shape(builder: GraphBuilder) -> None:
    builder.matrix("w", 4, 8, F32)
    with pytest.raises(GraphError, match=r"weight 'w' was declared as .*rows=4.*, now as .*rows=5"):
        builder.matrix("w", 5, 8, F32)


def test_collector_counts_layers_and_segments(builder: GraphBuilder) -> None:
    x = builder.embed(builder.matrix("e", 10, 16, F32))
    assert builder.begin_layer() == 0
    x = builder.linear(x, builder.matrix("a", 16, 16, F32))
    assert builder.begin_layer() == 1
    x = builder.linear(x, builder.matrix("b", 16, 16, F32))
    builder.end_layers()
    builder.logits(builder.gather(x), builder.matrix("e", 10, 16, F32))
    graph = builder.finish()
    assert [(o.layer, o.segment) for o in graph.operations] == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 3)]
    assert (graph.n_layers, graph.n_segments, graph.n_kv_layers, graph.n_vocab) == (2, 4, 0, 10)


def test_empty_collector_makes_an_empty_graph(builder: GraphBuilder) -> None:
    assert builder.finish().n_segments == 0
