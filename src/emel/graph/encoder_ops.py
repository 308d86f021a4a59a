"""Operations that encoders need beyond what decoders do (see ops.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.ops import Operation, RmsNorm
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Value, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm(RmsNorm):
    """out = (t - mean(t)) / sqrt(mean((t - mean(t))^2) + epsilon) * weight + bias (https://arxiv.org/abs/1607.06450).

    Fused as an RmsNorm is.
    """

    bias: Weight | None = None

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        yield self.weight
        if self.bias is not None:
            yield self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(Operation):
    """out = for each output row the mean of the rows of x that its token's sequence has in the batch."""

    x: Value
    out: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out
