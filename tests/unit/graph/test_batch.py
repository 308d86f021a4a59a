from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel.graph.batch import Batch, KvBinding, Outputs, StateBinding
from emel.graph.errors import GraphError
from emel.tensor.types import TensorType
from unit.graph.conftest import CAPACITY

if TYPE_CHECKING:
    from emel.graph.ops import Graph


def filled(batch: Batch) -> tuple[list[int], list[int], list[int], list[int]]:
    n, m = batch.n_tokens, batch.n_outputs
    return (
        batch.tokens[:n].tolist(),
        batch.positions[:n].tolist(),
        batch.sequences[:n].tolist(),
        batch.output_rows[:m].tolist(),
    )


def test_batch_refuses_a_cache_of_another_type() -> None:
    binding = KvBinding(64, 64, 64, CAPACITY.max_sequences, 1, TensorType.Q8_0)
    with pytest.raises(GraphError, match="the KV cache holds Q8_0, the plan reads F16: give both one kv_type"):
        Batch(CAPACITY, 8, binding)


def test_batch_adds_chunks_of_several_sequences(batch: Batch) -> None:
    assert batch.add([5, 6, 7], 10, 0, outputs=Outputs.NONE) == 0
    assert batch.add([8, 9], 3, 1, outputs=Outputs.LAST) == 0
    assert filled(batch) == ([5, 6, 7, 8, 9], [10, 11, 12, 3, 4], [0, 0, 0, 1, 1], [4])


def test_batch_adds_single_tokens_with_outputs(batch: Batch) -> None:
    assert batch.add_token(5, 10, 0) == 0
    assert batch.add_token(6, 20, 1) == 1
    assert filled(batch) == ([5, 6], [10, 20], [0, 1], [0, 1])


def test_batch_can_want_every_row(batch: Batch) -> None:
    assert batch.add([1], 0, 0, outputs=Outputs.LAST) == 0
    assert batch.add([2, 3], 0, 1, outputs=Outputs.ALL) == 1
    assert filled(batch)[3] == [0, 1, 2]


def test_batch_of_nothing_wants_nothing(batch: Batch) -> None:
    assert batch.add([], 0, 0, outputs=Outputs.LAST) == 0
    assert (batch.n_tokens, batch.n_outputs) == (0, 0)


def test_batch_clear_starts_anew(batch: Batch) -> None:
    batch.add([5, 6], 0, 0, outputs=Outputs.ALL)
    batch.clear()
    batch.add_token(7, 2, 0)
    assert filled(batch) == ([7], [2], [0], [0])


@pytest.mark.parametrize(("n", "outputs"), [(7, Outputs.NONE), (4, Outputs.ALL)])
def test_batch_refuses_what_does_not_fit_and_stays_as_it_was(batch: Batch, n: int, outputs: Outputs) -> None:
    with pytest.raises(GraphError, match=f"{n} tokens with . outputs do not fit: the batch holds 0 of 6 tokens"):
        batch.add([1] * n, 0, 0, outputs=outputs)
    assert (batch.n_tokens, batch.n_outputs) == (0, 0)


def test_batch_refuses_a_token_without_room_for_its_output(batch: Batch) -> None:
    for position in range(3):
        batch.add_token(1, position, 0)
    with pytest.raises(GraphError, match="3 of 6 tokens and 3 of 3 outputs"):
        batch.add_token(1, 3, 0)
    assert batch.n_tokens == 3


def test_batch_logits_are_views_of_existing_outputs(batch: Batch) -> None:
    batch.add([1, 2], 0, 0, outputs=Outputs.ALL)
    row = batch.logits(1)
    assert (len(row), row.format) == (batch.n_vocab, "f")
    np.asarray(row)[0] = 2.5
    assert batch.logits(1)[0] == 2.5
    assert batch.logits_address(1) - batch.logits_address(0) == 4 * batch.n_vocab
    for output in (2, -1):
        with pytest.raises(IndexError, match=f"output {output} of 2"):
            batch.logits(output)


def test_batch_needs_a_block_table_row_for_every_sequence(graph: Graph, binding: KvBinding) -> None:
    with pytest.raises(GraphError, match="the block table has 1 rows, 2 sequences need as many"):
        Batch(CAPACITY, graph.n_vocab, replace(binding, n_rows=1))


def test_batch_close_gives_the_logits_back(batch: Batch) -> None:
    batch.close()
    batch.close()
    with pytest.raises(ValueError, match="released"):
        batch._logits[0]


def test_batch_needs_a_slot_for_every_sequence(graph: Graph, binding: KvBinding) -> None:
    state = StateBinding(address=64, n_bytes=128, slots_address=256, n_rows=1)
    with pytest.raises(GraphError, match="there are 1 slots, 2 sequences need as many"):
        Batch(CAPACITY, graph.n_vocab, binding, state)
    batch = Batch(CAPACITY, graph.n_vocab, binding, replace(state, n_rows=2))
    assert (batch.record.state, batch.record.state_bytes, batch.record.slots) == (64, 128, 256)
