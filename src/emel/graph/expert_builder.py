"""The part of GraphBuilder that writes a mixture of experts down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.collector import GraphCollector
from emel.graph.errors import GraphError
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, Gating, TopK
from emel.graph.ops import Form, Part

if TYPE_CHECKING:
    from emel.graph.ops import Value, Weight


class ExpertBuilder(GraphCollector):
    """Calls for experts:

    weights, routing = builder.top_k(builder.linear(h, router), k)
    rows = builder.expert_rows(h, routing)
    gate, up = (builder.expert_linear(rows, routing, matrix) for matrix in (gates, ups))
    delta = builder.expert_sum(builder.expert_linear(builder.gated(gate, up), routing, downs), routing, weights)
    """

    def top_k(
        self,
        scores: Value,
        k: int,
        *,
        gating: Gating = Gating.SOFTMAX,
        is_normalized: bool = True,
        scale: float = 1.0,
        bias: Weight | None = None,
    ) -> tuple[Value, Value]:
        """Weights (rows, k) and routing of the k best of scores (rows, n_experts); see expert_ops.TopK."""
        if not 1 <= k <= scores.width:
            raise GraphError(f"top_k: {k} of {scores.width} experts")
        if bias is not None and bias.cols != scores.width:
            raise GraphError(f"top_k: bias {bias.name!r} has {bias.cols} values for {scores.width} experts")
        if not scale:
            raise GraphError("top_k: a scale of 0 leaves nothing")
        operation = TopK(
            scores=scores,
            weights_out=self._value_of("expert_weights", scores.rows, k, Form.F32),
            routing=self._value_of("routing", scores.rows, scores.width, Form.ROUTING, k),
            gating=gating,
            is_normalized=is_normalized,
            scale=scale,
            bias=bias,
            layer=self.layer,
            segment=self._segment,
        )
        self._operations.append(operation)
        return operation.weights_out, operation.routing

    def expert_rows(self, x: Value, routing: Value) -> Value:
        """The rows of x once for each of their experts, grouped by expert."""
        out = self._value_of("expert_rows", x.rows, x.width, Form.F32, routing.per_row)
        self._operations.append(ExpertRows(x=x, routing=routing, out=out, layer=self.layer, segment=self._segment))
        return out

    def expert_linear(self, x: Value, routing: Value, weight: Weight, bias: Weight | None = None) -> Value:
        """Grouped rows times their experts' matrices, `weight` (n_experts * rows, cols), expert after expert."""
        n_experts = routing.width
        if weight.cols != x.width or weight.rows % n_experts:
            raise GraphError(
                f"expert_linear {weight.name!r} is ({weight.rows}, {weight.cols}) for {n_experts} experts of {x.width}"
            )
        if bias is not None and bias.cols != weight.rows:
            raise GraphError(f"bias {bias.name!r} has {bias.cols} values, {weight.name!r} writes {weight.rows}")
        out = self._value_of("expert_linear", x.rows, weight.rows // n_experts, Form.F32, x.per_row)
        part = Part(out=out, weight=weight, bias=bias)
        self._operations.append(
            ExpertLinear(x=x, routing=routing, parts=(part,), layer=self.layer, segment=self._segment)
        )
        return out

    def expert_sum(self, x: Value, routing: Value, weights: Value) -> Value:
        """(rows, width): what a row's experts gave, weighed and summed."""
        out = self._value_of("expert_sum", x.rows, x.width, Form.F32)
        self._operations.append(
            ExpertSum(x=x, routing=routing, weights_in=weights, out=out, layer=self.layer, segment=self._segment)
        )
        return out
