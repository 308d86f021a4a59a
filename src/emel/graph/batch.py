"""Batch: the inputs and results of plan runs in arrays of fixed address, made once and refilled for every step.

    batch.clear()
    batch.add(ids, first_position, sequence, outputs=Outputs.LAST)   # a prefill chunk, or one token of a decode step
    graph.compute_reserved(batch)
    token = batch.argmax[0]

Filling it makes no ctypes object and no array; the native struct points at the same memory all the time.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from typing import TYPE_CHECKING

from emel._native import abi
from emel.graph.errors import GraphError
from emel.kernel.buffers import Memory, address_of, int32_array
from emel.kernel.sizes import KV_TYPES
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emel.graph.capacity import Capacity
    from emel.tensor.types import TensorType


class Outputs(Enum):
    """Which tokens of an addition get logits."""

    NONE = "none"
    FIRST = "first"
    LAST = "last"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class KvBinding:
    """Where the KV cache and its block table (n_rows, stride) int32 lie; both outlive every batch bound to them."""

    address: int
    n_bytes: int
    table_address: int
    n_rows: int
    stride: int
    kv_type: TensorType = KV_TYPES[0]


@dataclass(frozen=True, slots=True)
class StateBinding:
    """Where the recurrent state and the slots of the sequences, int32 (n_rows,), lie; both outlive every batch."""

    address: int
    n_bytes: int
    slots_address: int
    n_rows: int


class Batch:
    """Up to `capacity.max_tokens` tokens of up to `max_sequences` sequences; see the file's header.

    int32 arrays: `tokens`, `positions`, `sequences`, `bad_layer` (max_tokens,), `output_rows`, `argmax` (max_outputs,).
    After a run argmax[i] is the most likely token of output i (-1: its logits are not finite), and bad_layer[t] the
    first layer with a value of token t that is not finite (-1: none).
    """

    __slots__ = (
        "_logits",
        "_logits_memory",
        "argmax",
        "bad_layer",
        "capacity",
        "kv",
        "n_outputs",
        "n_sequences",
        "n_tokens",
        "n_vocab",
        "output_rows",
        "positions",
        "record",
        "reference",
        "sequences",
        "tokens",
    )

    def __init__(self, capacity: Capacity, n_vocab: int, kv: KvBinding, state: StateBinding | None = None) -> None:
        if kv.n_rows < capacity.max_sequences:
            raise GraphError(f"the block table has {kv.n_rows} rows, {capacity.max_sequences} sequences need as many")
        if kv.kv_type is not capacity.kv_type:
            raise GraphError(
                f"the KV cache holds {kv.kv_type.name}, the plan reads {capacity.kv_type.name}: give both one kv_type"
            )
        if state is not None and state.n_rows < capacity.max_sequences:
            raise GraphError(f"there are {state.n_rows} slots, {capacity.max_sequences} sequences need as many")
        self.capacity = capacity
        self.n_vocab = n_vocab
        self.kv = kv
        self.tokens = int32_array(capacity.max_tokens)
        self.positions = int32_array(capacity.max_tokens)
        self.sequences = int32_array(capacity.max_tokens)
        self.bad_layer = int32_array(capacity.max_tokens)
        self.output_rows = int32_array(capacity.max_outputs)
        self.argmax = int32_array(capacity.max_outputs)
        self._logits_memory = Memory(capacity.max_outputs * n_vocab * 4)
        self._logits = self._logits_memory.view("f")
        self.n_tokens = self.n_outputs = 0
        self.n_sequences = capacity.max_sequences
        self.record = abi.Batch(
            kv=kv.address,
            kv_bytes=kv.n_bytes,
            tokens=address_of(self.tokens),
            positions=address_of(self.positions),
            sequences=address_of(self.sequences),
            block_table=kv.table_address,
            output_rows=address_of(self.output_rows),
            logits=self._logits_memory.address,
            argmax=address_of(self.argmax),
            bad_layer=address_of(self.bad_layer),
            n_sequences=self.n_sequences,
            block_stride=kv.stride,
        )
        if state is not None:
            self.record.state, self.record.state_bytes = state.address, state.n_bytes
            self.record.slots = state.slots_address
        self.reference = ctypes.byref(self.record)

    def clear(self) -> None:
        """Forgets the tokens; results of the last run stay readable until the next one."""
        self.n_tokens = self.n_outputs = 0

    def add_token(self, token: int, position: int, sequence: int) -> int:
        """Adds one token whose logits are wanted; returns the index of its output. The path of a decode step."""
        at, output = self.n_tokens, self.n_outputs
        if at >= self.capacity.max_tokens or output >= self.capacity.max_outputs:
            raise self._overflow(1, 1)
        self.tokens[at] = token
        self.positions[at] = position
        self.sequences[at] = sequence
        self.output_rows[output] = at
        self.n_tokens = at + 1
        self.n_outputs = output + 1
        return output

    def advance(self, tokens: Iterable[int]) -> None:
        """The last batch again, which had a token of each sequence: the tokens behind those, with the same outputs."""
        own, positions = self.tokens, self.positions
        for at, token in enumerate(tokens):
            own[at] = token
            positions[at] += 1

    def add(self, tokens: Sequence[int], first_position: int, sequence: int, *, outputs: Outputs) -> int:
        """Adds consecutive tokens of one sequence; returns the index of their first output.

        GraphError when they or their outputs do not fit; nothing is added then. A sequence's tokens must be added at
        once: the native library wants them adjacent and ascending.
        """
        n, at, output = len(tokens), self.n_tokens, self.n_outputs
        n_outputs = {Outputs.NONE: 0, Outputs.FIRST: min(n, 1), Outputs.LAST: min(n, 1), Outputs.ALL: n}[outputs]
        if at + n > self.capacity.max_tokens or output + n_outputs > self.capacity.max_outputs:
            raise self._overflow(n, n_outputs)
        for index, token in enumerate(tokens, at):
            self.tokens[index] = token
            self.positions[index] = first_position + index - at
            self.sequences[index] = sequence
        first_row = at if outputs is Outputs.FIRST else at + n - n_outputs
        for index in range(n_outputs):
            self.output_rows[output + index] = first_row + index
        self.n_tokens = at + n
        self.n_outputs = output + n_outputs
        return output

    def logits(self, output: int) -> memoryview:
        """(n_vocab,) float32 of one output, a view of memory that the next run overwrites."""
        self._check_output(output)
        return self._logits[output * self.n_vocab : (output + 1) * self.n_vocab]

    def logits_address(self, output: int) -> int:
        """The address of one output's logits, for the native sampler."""
        self._check_output(output)
        return self._logits_memory.address + output * self.n_vocab * 4

    def close(self) -> None:
        """Gives the logits' memory back, at the latest with the last view of it; no run may use the batch any more."""
        self._logits.release()
        self._logits_memory.close()

    def _check_output(self, output: int) -> None:
        if not 0 <= output < self.n_outputs:
            raise IndexError(f"output {output} of {self.n_outputs}")

    def _overflow(self, n_tokens: int, n_outputs: int) -> GraphError:
        return GraphError(
            f"{n_tokens} tokens with {n_outputs} outputs do not fit: the batch holds {self.n_tokens} of "
            f"{self.capacity.max_tokens} tokens and {self.n_outputs} of {self.capacity.max_outputs} outputs"
        )
