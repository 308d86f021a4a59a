"""GraphBuilder: what an architecture file uses to write a graph down, one call for each operation of its paper.

    builder = GraphBuilder(heads=Heads(9, 3, 64), n_vocab=49152)
    x = builder.embed(builder.matrix("token_embd.weight", 49152, 576, TensorType.Q4_1))
    builder.begin_layer()
    ...
    graph = builder.finish()

Operands are checked when they are given (GraphError), rules over the whole graph by graph/spec.py.
"""

from __future__ import annotations

from emel.graph.attention_builder import AttentionBuilder
from emel.graph.encoder_builder import EncoderBuilder
from emel.graph.errors import GraphError
from emel.graph.expert_builder import ExpertBuilder
from emel.graph.ops import Activation, Add, Argmax, Embed, Form, Gated, Linear, Part, RmsNorm, Value, Weight
from emel.graph.state_ops import ShortConv, aligned_state_width


class GraphBuilder(AttentionBuilder, ExpertBuilder, EncoderBuilder):
    """Calls for what most architectures share; those of families of operations are inherited."""

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
