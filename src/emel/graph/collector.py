"""What a graph is collected in: its operations, values and weights, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.errors import GraphError
from emel.graph.ops import Form, Graph, Rows, Value, Weight
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from emel.graph.ops import Heads, Operation


class GraphCollector:
    """Collects operations, values and weights; `finish` gives the graph. Builders add the operations.

    Operations before the first `begin_layer` are segment 0, those of layer i segment i + 1, those after `end_layers`
    the last segment.
    """

    def __init__(self, *, heads: Heads, n_vocab: int) -> None:
        self.heads = heads
        self.n_vocab = n_vocab
        self._operations: list[Operation] = []
        self._values: list[Value] = []
        self._written_in: list[int] = []  # value index -> layer
        self._weights: dict[str, Weight] = {}
        self._n_layers = 0
        self._n_kv_layers = 0
        self._n_state_layers = 0
        self._state_width = 0
        self._segment = 0

    # ---- weights

    def matrix(self, name: str, rows: int, cols: int, type_: TensorType) -> Weight:
        """A packed (rows, cols) matrix; the same name again gives the same weight (tied embeddings)."""
        return self._weight(name, rows, cols, type_, is_packed=True)

    def vector(self, name: str, n: int, type_: TensorType = TensorType.F32) -> Weight:
        """A plain vector of n values."""
        return self._weight(name, 1, n, type_, is_packed=False)

    def _weight(self, name: str, rows: int, cols: int, type_: TensorType, *, is_packed: bool) -> Weight:
        known = self._weights.get(name)
        weight = Weight(known.index if known else len(self._weights), name, rows, cols, type_, is_packed)
        if known is not None and known != weight:
            raise GraphError(f"weight {name!r} was declared as {known}, now as {weight}")
        self._weights[name] = weight
        return weight

    # ---- structure

    @property
    def layer(self) -> int:
        """The layer that operations are added to; the last one after `end_layers`, 0 before the first."""
        return max(self._n_layers - 1, 0)

    def begin_layer(self) -> int:
        """Starts the next layer, in a segment of its own; returns its index."""
        self._segment += 1
        self._n_layers += 1
        return self._n_layers - 1

    def end_layers(self) -> None:
        """Starts the segment behind the last layer."""
        self._segment += 1

    def finish(self) -> Graph:
        """The graph as built; call once."""
        return Graph(
            operations=tuple(self._operations),
            values=tuple(self._values),
            weights=tuple(self._weights.values()),
            heads=self.heads,
            n_layers=self._n_layers,
            n_kv_layers=self._n_kv_layers,
            n_vocab=self.n_vocab,
            n_state_layers=self._n_state_layers,
            state_width=self._state_width,
        )

    def _value(self, name: str, like: Value | None, width: int, form: Form = Form.F32) -> Value:
        """A new value with the rows of another, or a row for each token."""
        return self._value_of(name, Rows.TOKENS if like is None else like.rows, width, form)

    def _value_of(self, name: str, rows: Rows, width: int, form: Form, per_row: int = 1) -> Value:
        value = Value(len(self._values), f"{name}.{self._segment}", rows, width, form, per_row)
        self._values.append(value)
        self._written_in.append(self.layer)
        return value
