"""Operations of a graph: frozen values with their operands, one class for each kind.

A graph is in single-assignment form: every `Value` is written by one operation. An operation that works in place
writes a new value and names the one whose storage it takes over (`in_place`); it may also spoil operands (`spoils`).
An architecture file uses the operations as its paper writes them (an addition, a norm, one linear at a time); those
marked *fused* below appear or change when graph/fuse.py rewrites the graph into what the kernels run.

Here: what graphs are made of, and the operations most of them have. attention_ops.py, expert_ops.py, encoder_ops.py
and state_ops.py have those of one kind of layer each.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.tensor.types import TensorType


class Rows(Enum):
    """What a value has a row for."""

    TOKENS = "tokens"  # each token of the batch
    OUTPUTS = "outputs"  # each token whose logits are wanted


class Form(Enum):
    """How a value is stored."""

    F32 = "f32"
    QUANTIZED = "quantized"  # int8 blocks of 32 with scales and sums
    ROUTING = "routing"  # who goes to which expert
    SCRATCH = "scratch"  # bytes of no meaning between operations
    LOGITS = "logits"  # float32 outside the arena: what the run is for


@dataclass(frozen=True, slots=True)
class Value:
    """(rows * per_row, width) numbers; `index` is unique in its graph. A routing's width is the number of experts."""

    index: int
    name: str
    rows: Rows
    width: int
    form: Form = Form.F32
    per_row: int = 1  # more than 1: a row for each expert chosen

    def __hash__(self) -> int:
        return self.index


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of the model, at `index` of the graph's table: a packed (rows, cols) matrix or a plain vector."""

    index: int
    name: str
    rows: int
    cols: int
    type: TensorType
    is_packed: bool


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention geometry: `n_heads` query heads share `n_kv_heads` key and value heads of `head_dim` each."""

    n_heads: int
    n_kv_heads: int
    head_dim: int

    @property
    def q_width(self) -> int:
        """Values of one token's queries."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Values of one token's keys (or values)."""
        return self.n_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`layer` is named when a value is not finite; `segment` groups what the streaming window may rebase at once."""

    layer: int
    segment: int

    def inputs(self) -> Iterator[Value]:
        """The values it reads."""
        yield from ()

    def outputs(self) -> Iterator[Value]:
        """The values it writes."""
        yield from ()

    def weights(self) -> Iterator[Weight]:
        """The weights it reads."""
        yield from ()

    def in_place(self) -> Iterator[tuple[Value, Value]]:
        """Pairs (written, read): the first takes over the storage of the second."""
        yield from ()

    def spoils(self) -> Iterator[Value]:
        """The inputs whose storage it overwrites."""
        for _, source in self.in_place():
            yield source


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Operation):
    """out = scale * row of weight for each token of the batch.

    `types` (cols, or more: the first are read) is added to all of them, then of `positions` (rows * cols) the row at
    each token's position.
    """

    out: Value
    weight: Weight
    scale: float = 1.0
    positions: Weight | None = None
    types: Weight | None = None

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        yield self.weight
        yield from self.added()

    def added(self) -> Iterator[Weight]:
        """The plain vectors it adds."""
        for weight in (self.positions, self.types):
            if weight is not None:
                yield weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Operation):
    """out = stream + scale * delta; fused into the norm that reads the sum first.

    With a `gate` (one value a row) delta is also multiplied by 1 / (1 + exp(-gate)); then no norm takes it over.
    """

    stream: Value
    delta: Value
    out: Value
    scale: float = 1.0
    gate: Value | None = None

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.stream
        yield self.delta
        if self.gate is not None:
            yield self.gate

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm(Operation):
    """out = t / sqrt(mean(t^2) + epsilon) * weight with t = x (https://arxiv.org/abs/1910.07467).

    Fused: t = x + delta_scale * delta, kept as `total` in x's storage; the result also, or only, as `quantized`.
    """

    x: Value
    weight: Weight
    epsilon: float
    out: Value | None = None
    quantized: Value | None = None
    delta: Value | None = None
    delta_scale: float = 1.0
    total: Value | None = None

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x
        if self.delta is not None:
            yield self.delta

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        for value in (self.total, self.out, self.quantized):
            if value is not None:
                yield value

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        yield self.weight

    def in_place(self) -> Iterator[tuple[Value, Value]]:  # noqa: D102
        if self.total is not None:
            yield self.total, self.x


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One matrix of a linear: out = weight . x + bias."""

    out: Value
    weight: Weight
    bias: Weight | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Operation):
    """Matrices that read one x. Fused: up to four parts in one job, x quantised for block-type matrices.

    Results y become y * scale, then cap * tanh(y / cap) unless the cap is 0. `begin`: a matrix that is a piece of rows
    writes only as many values of a row, from this one on; `onto` is the value with what the pieces before it wrote.
    """

    x: Value
    parts: tuple[Part, ...]
    scale: float = 1.0
    cap: float = 0.0
    begin: int | None = None
    onto: Value | None = None

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x
        if self.onto is not None:
            yield self.onto

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        for part in self.parts:
            yield part.out

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        for part in self.parts:
            yield part.weight
        for part in self.parts:
            if part.bias is not None:
                yield part.bias

    def in_place(self) -> Iterator[tuple[Value, Value]]:  # noqa: D102
        if self.onto is not None:
            yield self.parts[0].out, self.onto


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantize(Operation):
    """Fused only: out = x as int8 blocks, for a value no norm or gate wrote."""

    x: Value
    out: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out


class Activation(Enum):
    """What a gate applies."""

    SILU = 0  # x / (1 + exp(-x))
    GELU_TANH = 1  # https://arxiv.org/abs/1606.08415
    GELU_ERF = 2
    CLAMPED_SWISH = 3  # g = min(gate, limit): g / (1 + exp(-alpha g)), times up clamped to +-limit plus 1 (gpt-oss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated(Operation):
    """out = activation(gate) * up (https://arxiv.org/abs/2002.05202). Fused: also, or only, as `quantized`.

    Without `up` it is the activation alone.
    """

    gate: Value
    up: Value | None = None
    out: Value | None = None
    quantized: Value | None = None
    activation: Activation = Activation.SILU
    alpha: float = 0.0  # of CLAMPED_SWISH
    limit: float = 0.0

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.gate
        if self.up is not None:
            yield self.up

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        for value in (self.out, self.quantized):
            if value is not None:
                yield value


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(Operation):
    """out = the rows of x whose logits are wanted."""

    x: Value
    out: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out


@dataclass(frozen=True, slots=True, kw_only=True)
class Argmax(Operation):
    """The lowest index of the largest of each row of logits goes to the batch; `pieces` are those before the last."""

    logits: Value
    pieces: tuple[Value, ...] = ()

    @property
    def width(self) -> int:
        """Logits in a row."""
        return sum(value.width for value in self.inputs())

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield from self.pieces
        yield self.logits


@dataclass(frozen=True, slots=True)
class Graph:
    """What an architecture computes, in order; independent of batch sizes, threads and addresses."""

    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    weights: tuple[Weight, ...]
    heads: Heads
    n_layers: int
    n_kv_layers: int
    n_vocab: int
    n_state_layers: int = 0  # with recurrent state, state_width float32 values in each slot
    state_width: int = 0

    @property
    def n_segments(self) -> int:
        """Segments from 0 to the last operation's."""
        return self.operations[-1].segment + 1 if self.operations else 0

    @property
    def output_width(self) -> int:
        """Values of an output row: n_vocab logits, or what an encoder ends in."""
        return sum(value.width for value in self.values if value.form is Form.LOGITS) or self.n_vocab
