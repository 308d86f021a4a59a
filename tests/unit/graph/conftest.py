"""A tiny decoder with its weights packed, a pool, and a cache binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.batch import Batch, KvBinding
from emel.graph.capacity import Capacity
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.pool import LanePool
from emel.kernel.sizes import kv_bytes
from unit.graph.tiny import Tiny, pack_weights, raw_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Graph
    from emel.kernel.packing import PackedWeights

CAPACITY = Capacity(max_tokens=6, max_outputs=3, max_sequences=2, n_blocks=8)


@pytest.fixture
def pool() -> Iterator[LanePool]:
    with LanePool(2) as pool:
        yield pool


@pytest.fixture
def capacity() -> Capacity:
    return CAPACITY


@pytest.fixture
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture
def graph(tiny: Tiny) -> Graph:
    return tiny.build()


@pytest.fixture
def weights(graph: Graph, pool: LanePool) -> Iterator[PackedWeights]:
    weights = pack_weights(graph, raw_weights(graph), pool)
    yield weights
    weights.close()


@pytest.fixture
def binding(graph: Graph) -> Iterator[KvBinding]:
    """Two sequences of four blocks each: 0 to 3 and 4 to 7."""
    table = int32_array(8)
    for index in range(8):
        table[index] = index
    memory = Memory(kv_bytes(graph.n_kv_layers, 8, graph.heads.n_kv_heads, graph.heads.head_dim))
    yield KvBinding(memory.address, memory.n_bytes, address_of(table), 2, 4)
    memory.close()
    del table


@pytest.fixture
def batch(graph: Graph, binding: KvBinding) -> Batch:
    return Batch(CAPACITY, graph.n_vocab, binding)
