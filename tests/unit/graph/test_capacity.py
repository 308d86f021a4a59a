from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emel.graph.capacity import Capacity, value_bytes
from emel.graph.errors import GraphError
from emel.graph.fuse import fuse
from emel.graph.ops import Form, Rows
from emel.tensor.types import TensorType
from unit.graph.interpreters import FakeSizes
from unit.graph.tiny import Tiny

CAPACITY = Capacity(8, 2, 3, 4)


@pytest.mark.parametrize("name", ["max_tokens", "max_outputs", "max_sequences", "n_blocks"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_capacity_refuses_what_is_out_of_range(name: str, value: int) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(GraphError, match=f"{name} is {value}: 1 to 2147483647 are allowed"):
        replace(CAPACITY, **changed)


@pytest.mark.parametrize("value", [-1, 2**31])
def test_capacity_refuses_slots_out_of_range(value: int) -> None:
    with pytest.raises(GraphError, match=f"n_slots is {value}: 0 to 2147483647 are allowed"):
        replace(CAPACITY, n_slots=value)


def test_capacity_refuses_more_outputs_than_tokens() -> None:
    with pytest.raises(GraphError, match="max_outputs is 9: a batch of 8 tokens has no more"):
        Capacity(8, 9, 1, 1)


def test_capacity_holds_smaller_batches_on_the_same_cache() -> None:
    assert CAPACITY.holds(CAPACITY)
    assert CAPACITY.holds(Capacity(7, 1, 2, 4))
    for larger in (
        Capacity(9, 2, 3, 4),
        Capacity(8, 3, 3, 4),
        Capacity(8, 2, 4, 4),
        Capacity(8, 2, 3, 5),
        Capacity(8, 2, 3, 4, 1),
    ):
        assert not CAPACITY.holds(larger)


def test_capacity_refuses_sequences_of_more_blocks_than_there_are() -> None:
    assert replace(CAPACITY, sequence_blocks=4).max_sequence_blocks == CAPACITY.max_sequence_blocks == 4
    assert replace(CAPACITY, sequence_blocks=1).max_sequence_blocks == 1
    for value in (-1, 5):
        with pytest.raises(GraphError, match=f"sequence_blocks is {value}: 0 to 4, the blocks of the cache"):
            replace(CAPACITY, sequence_blocks=value)


def test_capacity_refuses_a_type_no_cache_holds() -> None:
    with pytest.raises(GraphError, match="kv_type is Q4_0: a KV cache holds F16, F32 or Q8_0"):
        replace(CAPACITY, kv_type=TensorType.Q4_0)


def test_capacity_holds_nothing_for_another_cache() -> None:
    assert CAPACITY.holds(replace(CAPACITY, sequence_blocks=2))
    assert not replace(CAPACITY, sequence_blocks=2).holds(CAPACITY)
    assert not CAPACITY.holds(replace(CAPACITY, kv_type=TensorType.Q8_0))


def test_scratch_follows_the_longest_sequence() -> None:
    graph = fuse(Tiny().build())
    scratch = [v.index for op in graph.operations for v in op.outputs() if v.form is Form.SCRATCH]
    wide = value_bytes(graph, replace(CAPACITY, n_blocks=400))
    for index in scratch:
        assert value_bytes(graph, replace(CAPACITY, n_blocks=400, sequence_blocks=20))[index] < wide[index]


def test_value_bytes_follow_rows_and_form() -> None:
    graph = fuse(Tiny().build())
    sizes = value_bytes(graph, CAPACITY, FakeSizes())
    for value in (value for operation in graph.operations for value in operation.outputs()):
        rows = 8 if value.rows is Rows.TOKENS else 2
        per_row = {Form.QUANTIZED: 4 * value.width + 64, Form.SCRATCH: 4 * 2 * 8 + 4}.get(value.form, 4 * value.width)
        assert sizes[value.index] == (per_row if value.form is Form.SCRATCH else rows * per_row)
