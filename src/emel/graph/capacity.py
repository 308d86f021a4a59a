"""How large a plan is: the largest batch it runs, and the bytes of every value at that size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emel.graph.attention_ops import Attention
from emel.graph.errors import GraphError
from emel.graph.ops import Form, Rows
from emel.kernel import sizes
from emel.kernel.numerics import DEFAULT_ACTIVATIONS, Activations
from emel.kernel.sizes import KV_TYPES
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.graph.ops import Graph
    from emel.tensor.types import TensorType


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits of a plan: tokens and output rows of a batch, rows of the block table, blocks of the KV cache.

    `n_slots`: those of the recurrent state, for a graph that has one. `sequence_blocks`: blocks of the longest
    sequence (0: all of them), which size the scratch of attention. `kv_type`: what the cache's numbers are.
    `activations`: what quantised values hold, which decides their size and all results.
    """

    max_tokens: int
    max_outputs: int
    max_sequences: int
    n_blocks: int
    n_slots: int = 0
    sequence_blocks: int = 0
    kv_type: TensorType = KV_TYPES[0]
    activations: Activations = DEFAULT_ACTIVATIONS

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_outputs", "max_sequences", "n_blocks"):
            value = getattr(self, name)
            if not 1 <= value < 2**31:
                raise GraphError(f"{name} is {value}: 1 to {2**31 - 1} are allowed")
        if not 0 <= self.n_slots < 2**31:
            raise GraphError(f"n_slots is {self.n_slots}: 0 to {2**31 - 1} are allowed")
        if not 0 <= self.sequence_blocks <= self.n_blocks:
            raise GraphError(
                f"sequence_blocks is {self.sequence_blocks}: 0 to {self.n_blocks}, the blocks of the cache, are allowed"
            )
        if self.kv_type not in KV_TYPES:
            *others, last = (each.name for each in KV_TYPES)
            raise GraphError(f"kv_type is {self.kv_type.name}: a KV cache holds {', '.join(others)} or {last}")
        if self.max_outputs > self.max_tokens:
            raise GraphError(f"max_outputs is {self.max_outputs}: a batch of {self.max_tokens} tokens has no more")

    @property
    def max_sequence_blocks(self) -> int:
        """Blocks of the longest sequence."""
        return self.sequence_blocks or self.n_blocks

    def rows(self, rows: Rows) -> int:
        """The most rows a value can have."""
        return self.max_tokens if rows is Rows.TOKENS else self.max_outputs

    def holds(self, other: Capacity) -> bool:
        """Whether a plan of this capacity runs every batch of the other one on the same KV cache."""
        return (
            self.max_tokens >= other.max_tokens
            and self.max_outputs >= other.max_outputs
            and self.max_sequences >= other.max_sequences
            and self.n_blocks == other.n_blocks
            and self.n_slots == other.n_slots
            and self.max_sequence_blocks >= other.max_sequence_blocks
            and self.kv_type is other.kv_type
            and self.activations is other.activations
        )


class Sizes(Protocol):
    """What the native library dictates; emel.kernel.sizes is one."""

    def quantized_bytes(self, width: int, activations: Activations, /) -> int:
        """Bytes of one token's quantised activation."""

    def routing_bytes(self, n_rows: int, k: int, n_experts: int, /) -> int:
        """Bytes of the routing of `n_rows` rows to `k` experts each."""

    def attention_scratch_bytes(
        self, max_tokens: int, n_heads: int, n_kv_heads: int, head_dim: int, n_blocks: int, /
    ) -> int:
        """Bytes of scratch of one attention."""


NATIVE_SIZES: Sizes = sizes


def value_bytes(graph: Graph, capacity: Capacity, native: Sizes = NATIVE_SIZES) -> dict[int, int]:
    """Value index -> bytes at the largest batch."""
    n_bytes: dict[int, int] = {}
    for operation in graph.operations:
        for value in operation.outputs():
            n_rows = capacity.rows(value.rows) * value.per_row
            if value.form is Form.QUANTIZED:
                n_bytes[value.index] = n_rows * native.quantized_bytes(value.width, capacity.activations)
            elif value.form is Form.ROUTING:
                n_bytes[value.index] = native.routing_bytes(capacity.rows(value.rows), value.per_row, value.width)
            elif value.form is Form.SCRATCH:
                assert isinstance(operation, Attention)  # the only operation with scratch
                heads = operation.heads
                n_bytes[value.index] = native.attention_scratch_bytes(
                    capacity.max_tokens, heads.n_heads, heads.n_kv_heads, heads.head_dim, capacity.max_sequence_blocks
                )
            else:
                n_bytes[value.index] = n_rows * value.width * 4
    return n_bytes
