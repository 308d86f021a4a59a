"""The part of GraphBuilder that only encoders use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.collector import GraphCollector
from emel.graph.encoder_ops import LayerNorm, Mean
from emel.graph.errors import GraphError
from emel.graph.ops import Form, Gather, Rows

if TYPE_CHECKING:
    from emel.graph.ops import Value, Weight


class EncoderBuilder(GraphCollector):
    """Calls for encoders; `is_result` ends a graph that has no logits with rows of its own."""

    def layer_norm(self, x: Value, weight: Weight, bias: Weight | None, epsilon: float) -> Value:
        """x without its mean, normalised to a variance of 1, times `weight`, plus `bias`."""
        for each in (weight, bias):
            if each is not None and each.cols != x.width:
                raise GraphError(f"layer_norm of {x.width} values with {each.cols} of {each.name!r}")
        out = self._value_of("norm", x.rows, x.width, Form.F32)
        self._operations.append(
            LayerNorm(
                x=x,
                weight=weight,
                bias=bias,
                epsilon=epsilon,
                out=out,
                layer=self._written_in[x.index],
                segment=self._segment,
            )
        )
        return out

    def gather(self, x: Value, *, is_result: bool = False) -> Value:
        """(n_outputs, width): the rows of x whose logits are wanted; everything behind it works on those alone."""
        out = self._value_of("gathered", Rows.OUTPUTS, x.width, Form.LOGITS if is_result else Form.F32)
        self._operations.append(Gather(x=x, out=out, layer=self.layer, segment=self._segment))
        return out

    def mean(self, x: Value, *, is_result: bool = False) -> Value:
        """(n_outputs, width): for each output row the mean of x over its token's sequence, which is in one batch."""
        out = self._value_of("mean", Rows.OUTPUTS, x.width, Form.LOGITS if is_result else Form.F32)
        self._operations.append(Mean(x=x, out=out, layer=self.layer, segment=self._segment))
        return out
