"""How wide each operand of an operation must be; the rule `fits_widths` of spec.py compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Attention, RopeStore, RopeTable
from emel.graph.encoder_ops import LayerNorm
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, TopK
from emel.graph.ops import Add, Argmax, Embed, Form, Linear, RmsNorm
from emel.graph.state_ops import ShortConv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.graph.ops import Operation

    Width = tuple[str, int, int]  # operand, its width, the width it must have


def operand_widths(operation: Operation) -> Iterator[Width]:
    """(operand, its width, the width it must have) of everything an operation touches."""
    if isinstance(operation, Embed):
        n = operation.weight.cols
        yield "out", operation.out.width, n
        yield from ((each.name, each.cols, max(each.cols // n, 1) * n) for each in operation.added())
    elif isinstance(operation, RopeTable):
        yield "out", operation.out.width, 2 * operation.frequencies.cols
    elif isinstance(operation, Linear):
        yield from _linear_widths(operation)
    elif isinstance(operation, RopeStore | Attention | ShortConv):
        yield from _sequence_widths(operation)
    elif isinstance(operation, TopK | ExpertRows | ExpertSum):
        yield from _expert_widths(operation)
    elif not isinstance(operation, Argmax):
        yield from _equal_widths(operation)


def _linear_widths(operation: Linear) -> Iterator[Width]:
    n_experts = operation.routing.width if isinstance(operation, ExpertLinear) else 1
    for part in operation.parts:
        yield part.weight.name, part.weight.cols, operation.x.width
        if operation.begin is None or part.out.form is Form.LOGITS:
            yield part.out.name, part.out.width * n_experts, part.weight.rows
        if part.bias is not None:
            yield part.bias.name, part.bias.cols, part.weight.rows


def _sequence_widths(operation: RopeStore | Attention | ShortConv) -> Iterator[Width]:
    if isinstance(operation, ShortConv):
        n = operation.out.width
        yield "x", operation.x.width, 3 * n
        yield operation.taps.name, operation.taps.cols, operation.n_taps * n
        if operation.bias is not None:
            yield operation.bias.name, operation.bias.cols, n
        return
    heads = operation.heads
    yield "q", operation.q.width, heads.q_width
    if isinstance(operation, RopeStore):
        yield "k", operation.k.width, heads.kv_width
        yield "v", operation.v.width, heads.kv_width
        yield "rotated", operation.rotated.width, heads.q_width
        yield from ((norm.name, norm.cols, heads.head_dim) for norm in operation.weights())
    else:
        yield "out", operation.out.width, heads.q_width
        yield from ((sinks.name, sinks.cols, heads.n_heads) for sinks in operation.weights())


def _expert_widths(operation: TopK | ExpertRows | ExpertSum) -> Iterator[Width]:
    if isinstance(operation, TopK):
        yield "routing", operation.routing.width, operation.scores.width
        yield from ((bias.name, bias.cols, operation.scores.width) for bias in operation.weights())
        return
    yield "out", operation.out.width, operation.x.width
    if isinstance(operation, ExpertSum):
        yield "weights", operation.weights_in.width, operation.routing.per_row


def _equal_widths(operation: Operation) -> Iterator[Width]:
    operands = [*operation.inputs(), *operation.outputs()]
    if isinstance(operation, Add) and operation.gate is not None:
        operands.remove(operation.gate)
        yield operation.gate.name, operation.gate.width, 1
    if isinstance(operation, RmsNorm):
        yield operation.weight.name, operation.weight.cols, operation.x.width
    if isinstance(operation, LayerNorm) and operation.bias is not None:
        yield operation.bias.name, operation.bias.cols, operation.x.width
    yield from ((value.name, value.width, operands[0].width) for value in operands)
