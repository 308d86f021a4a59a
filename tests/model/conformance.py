"""What holds for every architecture: one kit, whatever the model.

    with Runner(path) as runner:
        logits = runner.logits(ids)

1. Logits are those of the slow float64 reference, within what the types of weights and cache allow.
2. They are the same bits for any prefill chunk, number of threads, CPU route, and company in the batch.
The graph is run directly: no session, no text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel.graph.batch import Batch, Outputs, StateBinding
from emel.graph.capacity import Capacity
from emel.graph.reservation import ReservedGraph
from emel.kernel.buffers import address_of, int32_array
from emel.kernel.features import choose_route
from emel.kernel.pool import LanePool
from emel.memory.kv import KvCache
from emel.memory.recurrent import RecurrentSlots
from emel.model.loader import load_model
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from numpy.typing import NDArray

    from emel.graph.state_ops import StateGeometry

MAX_TOKENS = 64
MAX_SEQUENCES = 3


class Runner:
    """A model's weights, plan, cache and batch; a context manager."""

    def __init__(
        self,
        path: Path,
        *,
        n_threads: int = 2,
        isa: str | None = None,
        n_ctx: int | None = None,
        kv_type: TensorType = TensorType.F16,
    ) -> None:
        self.pool = LanePool(n_threads)
        self.model = load_model(path, self.pool, n_ctx=n_ctx)
        parameters = self.model.parameters
        self.cache = KvCache(
            n_kv_layers=parameters.n_kv_layers,
            heads=parameters.heads,
            n_ctx=256,
            max_sequences=MAX_SEQUENCES,
            kv_type=kv_type,
        )
        state = None if parameters.state is None else self._open_states(parameters.state)
        n_slots = 0 if state is None else MAX_SEQUENCES
        capacity = Capacity(MAX_TOKENS, MAX_TOKENS, MAX_SEQUENCES, self.cache.n_blocks, n_slots, kv_type=kv_type)
        self.batch = Batch(capacity, parameters.n_vocab, self.cache.binding, state)
        self.graph = ReservedGraph(
            self.model.build, self.model.weights, capacity, pool=self.pool, route=choose_route(isa).isa
        )

    def _open_states(self, geometry: StateGeometry) -> StateBinding:
        """A slot for each sequence, its own; a first token finds no state, whatever lies there."""
        self._slots = RecurrentSlots(MAX_SEQUENCES, geometry)
        self._rows = int32_array(MAX_SEQUENCES)
        for row in range(MAX_SEQUENCES):
            self._rows[row] = row
        return StateBinding(self._slots.address, self._slots.n_bytes, address_of(self._rows), MAX_SEQUENCES)

    def logits(self, ids: Sequence[int], *, chunk: int = MAX_TOKENS) -> NDArray[np.float32]:
        """(n_tokens, n_vocab) of every position, computed `chunk` tokens at a time."""
        sequence = self.cache.open()
        rows = [self.step([(sequence, ids[at : at + chunk])])[0] for at in range(0, len(ids), chunk)]
        self.cache.close_sequence(sequence)
        return np.concatenate(rows)

    def greedy(self, ids: Sequence[int], n: int) -> list[int]:
        """The `n` best tokens behind a prompt, each computed alone."""
        sequence = self.cache.open()
        rows = self.step([(sequence, ids)])[0]
        answer: list[int] = []
        while len(answer) < n:
            answer.append(int(rows[-1].argmax()))
            rows = self.step([(sequence, answer[-1:])])[0]
        self.cache.close_sequence(sequence)
        return answer

    def step(self, additions: Sequence[tuple[int, Sequence[int]]]) -> list[NDArray[np.float32]]:
        """One batch: tokens for some sequences; the logits (n_tokens, n_vocab) of each."""
        self.batch.clear()
        for sequence, ids in additions:
            self.batch.add(ids, self.cache.reserve(sequence, len(ids)), sequence, outputs=Outputs.ALL)
        self.graph.compute(self.batch)
        outputs = iter(range(self.batch.n_outputs))
        return [np.array([self.batch.logits(next(outputs)) for _ in ids], np.float32) for _, ids in additions]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self.graph, self.batch, self.cache, self.model, self.pool):
            opened.close()


def check_chunks(runner: Runner, ids: Sequence[int], logits: NDArray[np.float32]) -> None:
    """The bits are the same however the tokens come."""
    for chunk in (1, 7, len(ids)):
        assert np.array_equal(runner.logits(ids, chunk=chunk), logits), f"chunks of {chunk}"


def check_company(runner: Runner, ids: Sequence[int], logits: NDArray[np.float32]) -> None:
    """The bits are the same with other sequences in the batch, at other positions."""
    other = [(7 * token + 3) % 250 for token in ids]
    alone = runner.logits(other)
    first, second, third = (runner.cache.open() for _ in range(3))
    head = [runner.step([(second, other[:9])])[0]]
    mine, theirs, _ = runner.step([(first, ids[:20]), (second, other[9:30]), (third, [5])])
    for index in range(20, len(ids)):
        row, company = runner.step([(first, [ids[index]]), (second, [other[(index + 10) % len(ids)]])])
        assert np.array_equal(row[0], logits[index]), f"token {index} in company"
        if index + 10 < len(ids):
            assert np.array_equal(company[0], alone[index + 10]), f"the other sequence's token {index + 10}"
    assert np.array_equal(mine, logits[:20])
    assert np.array_equal(np.concatenate([*head, theirs]), alone[:30])
    for sequence in (first, second, third):
        runner.cache.close_sequence(sequence)
