"""Operations of a mixture of experts (https://arxiv.org/abs/1701.06538; see ops.py).

A `TopK` chooses `k` experts for each row. Values that stand behind an `ExpertRows` have `per_row` = k rows for each row
of the batch, grouped by expert; an `ExpertSum` brings them back.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.graph.ops import Linear, Operation
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Value, Weight


class Gating(Enum):
    """How the scores of experts become weights."""

    SOFTMAX = 0  # over all experts
    SIGMOID = 1
    SOFTMAX_OF_CHOSEN = 2  # the choice is by the scores themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Operation):
    """weights (rows, k): those of the k best experts in descending order; routing: who they are.

    `bias` (n_experts) is added to choose, not to weigh. `is_normalized`: weights are divided by their sum; in the end
    they are multiplied by `scale`.
    """

    scores: Value
    weights_out: Value
    routing: Value
    gating: Gating
    is_normalized: bool
    scale: float = 1.0
    bias: Weight | None = None

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.scores

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.weights_out
        yield self.routing

    def weights(self) -> Iterator[Weight]:  # noqa: D102
        if self.bias is not None:
            yield self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRows(Operation):
    """out = a copy of each row of x for each of its experts. Fused: quantised rows where all experts are of blocks."""

    x: Value
    routing: Value
    out: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x
        yield self.routing

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLinear(Linear):
    """A linear of grouped rows: each part's matrix is (n_experts * width of its result, cols), expert after expert."""

    routing: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.x
        yield self.routing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSum(Operation):
    """out = the sum over a row's experts, in their order, of weight times what the expert gave."""

    x: Value
    routing: Value
    weights_in: Value
    out: Value

    def inputs(self) -> Iterator[Value]:  # noqa: D102
        yield from (self.x, self.routing, self.weights_in)

    def outputs(self) -> Iterator[Value]:  # noqa: D102
        yield self.out
