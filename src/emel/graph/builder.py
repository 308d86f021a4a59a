"""GraphBuilder: what an architecture file uses to write a graph down, one call for each operation of its paper.

    builder = GraphBuilder(heads=Heads(9, 3, 64), n_vocab=49152)
    x = builder.embed(builder.matrix("token_embd.weight", 49152, 576, TensorType.Q4_1))
    builder.begin_layer()
    ...
    graph = builder.finish()

Operands are checked when they are given (GraphError), rules over the whole graph by graph/spec.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.encoder_builder import EncoderBuilder
from emel.graph.errors import GraphError
from emel.graph.expert_builder import ExpertBuilder
from emel.graph.ops import (
    Activation,
    Add,
    Argmax,
    Attention,
    Embed,
    Form,
    Gated,
    Graph,
    Linear,
    Pairing,
    Part,
    RmsNorm,
    RopeStore,
    RopeTable,
    Rows,
    Value,
    Weight,
)
from emel.graph.state_ops import ShortConv, aligned_state_width
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from emel.graph.ops import Heads, Operation


class GraphBuilder(ExpertBuilder, EncoderBuilder):
    """Collects operations, values and weights; `finish` gives the graph.

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
        return self._value_of(name, Rows.TOKENS if like is None else like.rows, width, form)

    def _value_of(self, name: str, rows: Rows, width: int, form: Form, per_row: int = 1) -> Value:
        value = Value(len(self._values), f"{name}.{self._segment}", rows, width, form, per_row)
        self._values.append(value)
        self._written_in.append(self.layer)
        return value

    # ---- operations

    def embed(
        self, weight: Weight, *, scale: float = 1.0, positions: Weight | None = None, types: Weight | None = None
    ) -> Value:
        """(n_tokens, cols): a row of `weight` for each token; see ops.Embed for what may be added to it."""
        for each in (positions, types):
            if each is not None and each.cols % weight.cols:
                raise GraphError(f"embed: {each.name!r} has {each.cols} values, not rows of {weight.cols}")
        out = self._value("embedding", None, weight.cols)
        self._operations.append(
            Embed(
                out=out,
                weight=weight,
                scale=scale,
                positions=positions,
                types=types,
                layer=self.layer,
                segment=self._segment,
            )
        )
        return out

    def rope_table(self, frequencies: Weight, *, magnitude: float = 1.0) -> Value:
        """(n_tokens, 2 * len(frequencies)): cos and sin of every angle times `magnitude`, shared by all layers."""
        if not magnitude > 0:
            raise GraphError(f"rope_table: the magnitude is {magnitude}, it must be positive")
        out = self._value("rope_table", None, 2 * frequencies.cols)
        self._operations.append(
            RopeTable(out=out, frequencies=frequencies, magnitude=magnitude, layer=self.layer, segment=self._segment)
        )
        return out

    def add(self, stream: Value, delta: Value, *, scale: float = 1.0, gate: Value | None = None) -> Value:
        """The residual stream plus `scale` times what a block adds to it; `stream` must not be read afterwards.

        `gate`: one value for each row, whose sigmoid delta is multiplied with (a shared expert's).
        """
        _same_shape("add", stream, delta)
        if gate is not None and (gate.rows, gate.width) != (stream.rows, 1):
            raise GraphError(f"add: the gate is ({gate.rows.value}, {gate.width}), not ({stream.rows.value}, 1)")
        if not scale:
            raise GraphError("add: a scale of 0 adds nothing")
        out = self._value("stream", stream, stream.width)
        self._operations.append(
            Add(
                stream=stream,
                delta=delta,
                out=out,
                scale=scale,
                gate=gate,
                layer=self.layer,
                segment=self._segment,
            )
        )
        return out

    def rms_norm(self, x: Value, weight: Weight, epsilon: float) -> Value:
        """x normalised to a root mean square of 1, times `weight`.

        A norm is where values that are not finite are noticed, so it names the layer that wrote x.
        """
        if weight.cols != x.width:
            raise GraphError(f"rms_norm of {x.width} values with a weight of {weight.cols} ({weight.name!r})")
        out = self._value("norm", x, x.width)
        self._operations.append(
            RmsNorm(
                x=x, weight=weight, epsilon=epsilon, out=out, layer=self._written_in[x.index], segment=self._segment
            )
        )
        return out

    def linear(self, x: Value, weight: Weight, bias: Weight | None = None) -> Value:
        """(rows of x, weight.rows) = weight . x + bias. Calls in a row that read one x become one job."""
        return self._linear(x, weight, bias, self._value("linear", x, weight.rows))

    def logits(
        self, x: Value, weight: Weight, bias: Weight | None = None, *, scale: float = 1.0, cap: float = 0.0
    ) -> Value:
        """The linear that ends the graph: (n_outputs, n_vocab), outside the arena.

        Logits y become y * scale, then cap * tanh(y / cap) unless the cap is 0.
        """
        if not scale:
            raise GraphError("logits: a scale of 0 leaves nothing")
        return self._linear(x, weight, bias, self._value("logits", x, weight.rows, Form.LOGITS), scale=scale, cap=cap)

    def _linear(
        self, x: Value, weight: Weight, bias: Weight | None, out: Value, *, scale: float = 1.0, cap: float = 0.0
    ) -> Value:
        if weight.cols != x.width:
            raise GraphError(f"linear {weight.name!r} reads {weight.cols} values, its input has {x.width}")
        if bias is not None and bias.cols != weight.rows:
            raise GraphError(f"bias {bias.name!r} has {bias.cols} values, {weight.name!r} writes {weight.rows}")
        part = Part(out=out, weight=weight, bias=bias)
        self._operations.append(
            Linear(x=x, parts=(part,), scale=scale, cap=cap, layer=self.layer, segment=self._segment)
        )
        return out

    def rope_store(
        self,
        q: Value,
        k: Value,
        v: Value,
        table: Value | None,
        *,
        pairing: Pairing,
        heads: Heads | None = None,
        q_norm: Weight | None = None,
        k_norm: Weight | None = None,
        epsilon: float = 0.0,
    ) -> Value:
        """Rotates q and k, puts k and v into the next layer of the KV cache, returns the rotated q.

        `q_norm` and `k_norm`: RMS norms of each head, before. No table: no rotation. `heads`: where a layer differs
        from the cache, which must have as many key heads or more.
        """
        heads = heads or self.heads
        for name, value, width in (("q", q, heads.q_width), ("k", k, heads.kv_width), ("v", v, k.width)):
            if value.width != width:
                raise GraphError(f"rope_store: {name} has {value.width} values, {heads} needs {width}")
        for norm in (q_norm, k_norm):
            if norm is not None and norm.cols != heads.head_dim:
                raise GraphError(f"rope_store: norm {norm.name!r} has {norm.cols} values, a head {heads.head_dim}")
        rotated = self._value("rotated", q, q.width)
        self._operations.append(
            RopeStore(
                q=q,
                k=k,
                v=v,
                table=table,
                rotated=rotated,
                heads=heads,
                pairing=pairing,
                kv_layer=self._n_kv_layers,
                q_norm=q_norm,
                k_norm=k_norm,
                epsilon=epsilon,
                layer=self.layer,
                segment=self._segment,
            )
        )
        self._n_kv_layers += 1
        return rotated

    def attention(
        self,
        q: Value,
        *,
        scale: float,
        heads: Heads | None = None,
        window: int = 0,
        is_causal: bool = True,
        cap: float = 0.0,
        sinks: Weight | None = None,
    ) -> Value:
        """Attention of the rotated q over the layer of the KV cache that was stored last; see ops.Attention."""
        heads = heads or self.heads
        if q.width != heads.q_width:
            raise GraphError(f"attention: q has {q.width} values, {heads} needs {heads.q_width}")
        if sinks is not None and sinks.cols != heads.n_heads:
            raise GraphError(f"attention: sinks {sinks.name!r} has {sinks.cols} values, {heads} needs {heads.n_heads}")
        if not 0 <= window < 2**32:
            raise GraphError(f"attention: a window of {window} keys")
        scratch = self._value("scratch", q, 0, Form.SCRATCH)
        out = self._value("attention", q, q.width)
        self._operations.append(
            Attention(
                q=q,
                scratch=scratch,
                out=out,
                heads=heads,
                scale=scale,
                window=window,
                is_causal=is_causal,
                cap=cap,
                sinks=sinks,
                kv_layer=self._n_kv_layers - 1,
                layer=self.layer,
                segment=self._segment,
            )
        )
        return out

    def gated(
        self,
        gate: Value,
        up: Value | None,
        activation: Activation = Activation.SILU,
        *,
        alpha: float = 0.0,
        limit: float = 0.0,
    ) -> Value:
        """activation(gate) * up, or the activation alone; `alpha` and `limit` are those of CLAMPED_SWISH."""
        if up is not None:
            _same_shape("gated", gate, up)
        elif activation is Activation.CLAMPED_SWISH:
            raise GraphError("gated: the clamped swish needs a value to multiply")
        out = self._value_of("gated", gate.rows, gate.width, Form.F32, gate.per_row)
        self._operations.append(
            Gated(
                gate=gate,
                up=up,
                out=out,
                activation=activation,
                alpha=alpha,
                limit=limit,
                layer=self.layer,
                segment=self._segment,
            )
        )
        return out

    def short_conv(self, x: Value, taps: Weight, n_taps: int, bias: Weight | None = None) -> Value:
        """(n_tokens, n): gated short convolution of x (n_tokens, 3n), in the next layer of the recurrent state.

        `taps` is (1, n_taps * n), tap by tap, the oldest first; see state_ops.ShortConv.
        """
        n, rest = divmod(x.width, 3)
        if rest or taps.cols != n_taps * n:
            raise GraphError(f"short_conv of {x.width} values (three parts) with {n_taps} taps in {taps.cols} values")
        if bias is not None and bias.cols != n:
            raise GraphError(f"short_conv: bias {bias.name!r} has {bias.cols} values, not {n}")
        operation = ShortConv(
            x=x,
            out=self._value("conv", x, n),
            taps=taps,
            n_taps=n_taps,
            state_layer=self._n_state_layers,
            bias=bias,
            layer=self.layer,
            segment=self._segment,
        )
        self._operations.append(operation)
        self._n_state_layers += 1
        self._state_width = max(self._state_width, aligned_state_width(operation.state_width))
        return operation.out

    def argmax(self, logits: Value) -> None:
        """Has the run note the most likely token of each output row."""
        self._operations.append(Argmax(logits=logits, layer=self.layer, segment=self._segment))


def _same_shape(what: str, left: Value, right: Value) -> None:
    if (left.rows, left.width) != (right.rows, right.width):
        raise GraphError(
            f"{what} of ({left.rows.value}, {left.width}) and ({right.rows.value}, {right.width}): shapes must be equal"
        )
