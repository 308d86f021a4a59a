"""What each kind of operation puts into the fields of its record (native/include/emel.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel._native import abi
from emel.graph.attention_ops import Attention, RopeStore, RopeTable
from emel.graph.encoder_ops import LayerNorm, Mean
from emel.graph.errors import GraphError
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, TopK
from emel.graph.ops import Add, Argmax, Embed, Form, Gated, Gather, Linear, Operation, Quantize, RmsNorm, Rows
from emel.graph.state_ops import ShortConv

if TYPE_CHECKING:
    from collections.abc import Callable

    from emel.graph.ops import Value


def fill_record(record: abi.Op, operation: Operation, offsets: dict[int, int]) -> None:
    """Fills a zeroed record; `offsets` gives the place of each value. GraphError for an operation no kernel runs."""
    record.layer = operation.layer
    record.segment = operation.segment
    for index in range(4):
        record.in_[index] = record.out[index] = abi.NONE
    for index in range(8):
        record.weight[index] = abi.NO_WEIGHT
    if not isinstance(operation, Gather | Mean) and any(
        value.rows is Rows.OUTPUTS for value in (*operation.inputs(), *operation.outputs())
    ):
        record.flags |= abi.OpFlag.OUTPUT_ROWS
    filler = FILLERS.get(type(operation))
    if filler is None:
        raise GraphError(f"no kernel runs {type(operation).__name__}")
    filler(record, operation, offsets)


def _fill_source(record: abi.Op, operation: Embed | RopeTable, offsets: dict[int, int]) -> None:
    record.out[0] = offsets[operation.out.index]
    if isinstance(operation, Embed):
        record.kind = abi.OpKind.EMBED
        record.weight[0] = operation.weight.index
        record.param[0] = operation.scale
        for slot, added in ((1, operation.positions), (2, operation.types)):
            if added is not None:
                record.weight[slot] = added.index
    else:
        record.kind = abi.OpKind.ROPE_TABLE
        record.weight[0] = operation.frequencies.index
        record.param[0] = operation.magnitude


def _fill_linear(record: abi.Op, operation: Linear, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.MATMUL
    record.in_[0] = offsets[operation.x.index]
    record.dim[0] = operation.x.width
    record.dim[1] = len(operation.parts)
    record.param[0], record.param[1] = operation.scale, operation.cap
    if operation.begin is not None:
        record.dim[2], record.dim[3] = operation.begin, 1
        if operation.parts[0].out.form is not Form.LOGITS:
            record.dim[4] = operation.parts[0].out.width
    for index, part in enumerate(operation.parts):
        record.out[index] = _written_at(part.out, offsets)
        record.weight[index] = part.weight.index
        if part.bias is not None:
            record.weight[abi.MAX_PARTS + index] = part.bias.index


def _fill_attention(record: abi.Op, operation: RopeStore | Attention, offsets: dict[int, int]) -> None:
    heads = operation.heads
    record.dim[0], record.dim[1], record.dim[2] = heads.n_heads, heads.n_kv_heads, heads.head_dim
    record.in_[0] = offsets[operation.q.index]
    if isinstance(operation, RopeStore):
        record.kind = abi.OpKind.ROPE_STORE
        record.in_[1] = offsets[operation.k.index]
        record.in_[2] = offsets[operation.v.index]
        if operation.table is not None:
            record.in_[3] = offsets[operation.table.index]
            record.dim[3] = operation.table.width
        for index, norm in enumerate((operation.q_norm, operation.k_norm)):
            if norm is not None:
                record.weight[index] = norm.index
        record.param[0] = operation.epsilon
        record.dim[4] = operation.pairing.value
        record.dim[5] = operation.kv_layer
    else:
        record.kind = abi.OpKind.ATTENTION
        record.in_[1] = offsets[operation.scratch.index]
        record.out[0] = offsets[operation.out.index]
        record.dim[3] = operation.kv_layer
        record.dim[4] = operation.window
        record.dim[5] = int(not operation.is_causal)
        record.param[0], record.param[1] = operation.scale, operation.cap
        if operation.sinks is not None:
            record.weight[0] = operation.sinks.index


def _fill_norm(record: abi.Op, operation: RmsNorm, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.RMS_NORM
    if isinstance(operation, LayerNorm):
        record.kind = abi.OpKind.LAYER_NORM
        if operation.bias is not None:
            record.weight[1] = operation.bias.index
    record.in_[0] = offsets[operation.x.index]
    if operation.delta is not None:
        record.in_[1] = offsets[operation.delta.index]
    record.weight[0] = operation.weight.index
    record.dim[0] = operation.x.width
    record.param[0], record.param[1] = operation.epsilon, operation.delta_scale
    _fill_results(record, operation, offsets)


def _fill_add(record: abi.Op, operation: Add, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.ADD
    record.in_[0] = offsets[operation.stream.index]
    record.in_[1] = offsets[operation.delta.index]
    if operation.gate is not None:
        record.in_[2] = offsets[operation.gate.index]
    record.out[0] = offsets[operation.out.index]
    record.dim[0] = operation.stream.width
    record.param[0] = operation.scale


def _fill_gated(record: abi.Op, operation: Gated, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.GATED
    record.in_[0] = offsets[operation.gate.index]
    if operation.up is not None:
        record.in_[1] = offsets[operation.up.index]
    record.dim[0] = operation.gate.width
    record.dim[1] = operation.activation.value
    record.dim[2] = operation.gate.per_row
    record.param[0], record.param[1] = operation.alpha, operation.limit
    _fill_results(record, operation, offsets)


def _fill_results(record: abi.Op, operation: RmsNorm | Gated, offsets: dict[int, int]) -> None:
    for index, value in enumerate((operation.out, operation.quantized)):
        if value is not None:
            record.out[index] = offsets[value.index]


def _fill_short_conv(record: abi.Op, operation: ShortConv, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.SHORT_CONV
    record.in_[0] = offsets[operation.x.index]
    record.out[0] = offsets[operation.out.index]
    record.weight[0] = operation.taps.index
    if operation.bias is not None:
        record.weight[1] = operation.bias.index
    record.dim[0], record.dim[1] = operation.out.width, operation.n_taps
    record.dim[2], record.dim[3] = operation.state_layer, operation.n_kept


def _fill_quantize(record: abi.Op, operation: Quantize, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.QUANTIZE
    record.in_[0] = offsets[operation.x.index]
    record.out[0] = offsets[operation.out.index]
    record.dim[0], record.dim[2] = operation.x.width, operation.x.per_row


def _fill_output_rows(record: abi.Op, operation: Gather | Mean, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.MEAN if isinstance(operation, Mean) else abi.OpKind.GATHER
    record.in_[0] = offsets[operation.x.index]
    record.out[0] = _written_at(operation.out, offsets)
    record.dim[0] = operation.x.width


def _written_at(value: Value, offsets: dict[int, int]) -> int:
    return abi.LOGITS if value.form is Form.LOGITS else offsets[value.index]


def _fill_top_k(record: abi.Op, operation: TopK, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.TOP_K
    record.in_[0] = offsets[operation.scores.index]
    record.out[0] = offsets[operation.weights_out.index]
    record.out[1] = offsets[operation.routing.index]
    if operation.bias is not None:
        record.weight[0] = operation.bias.index
    record.dim[0], record.dim[1] = operation.scores.width, operation.routing.per_row
    record.dim[2], record.dim[3] = operation.gating.value, int(operation.is_normalized)
    record.param[0] = operation.scale


def _fill_expert_rows(record: abi.Op, operation: ExpertRows, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.EXPERT_ROWS
    record.in_[0], record.in_[1] = offsets[operation.x.index], offsets[operation.routing.index]
    record.out[0] = offsets[operation.out.index]
    record.dim[0], record.dim[1], record.dim[2] = operation.x.width, operation.routing.per_row, operation.routing.width
    record.dim[3] = int(operation.x.form is Form.QUANTIZED)


def _fill_expert_linear(record: abi.Op, operation: ExpertLinear, offsets: dict[int, int]) -> None:
    _fill_linear(record, operation, offsets)
    record.kind = abi.OpKind.EXPERT_MATMUL
    record.in_[1] = offsets[operation.routing.index]
    record.dim[2], record.dim[3] = operation.routing.per_row, operation.routing.width
    record.param[0] = record.param[1] = 0.0


def _fill_expert_sum(record: abi.Op, operation: ExpertSum, offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.EXPERT_SUM
    for index, value in enumerate(operation.inputs()):
        record.in_[index] = offsets[value.index]
    record.out[0] = offsets[operation.out.index]
    record.dim[0], record.dim[1], record.dim[2] = operation.x.width, operation.routing.per_row, operation.routing.width


def _fill_argmax(record: abi.Op, operation: Argmax, _offsets: dict[int, int]) -> None:
    record.kind = abi.OpKind.ARGMAX
    record.dim[0] = operation.width


FILLERS: dict[type[Operation], Callable[[abi.Op, Any, dict[int, int]], None]] = {
    Embed: _fill_source,
    RopeTable: _fill_source,
    RmsNorm: _fill_norm,
    LayerNorm: _fill_norm,
    Add: _fill_add,
    Linear: _fill_linear,
    RopeStore: _fill_attention,
    Attention: _fill_attention,
    ShortConv: _fill_short_conv,
    TopK: _fill_top_k,
    ExpertRows: _fill_expert_rows,
    ExpertLinear: _fill_expert_linear,
    ExpertSum: _fill_expert_sum,
    Gated: _fill_gated,
    Quantize: _fill_quantize,
    Gather: _fill_output_rows,
    Mean: _fill_output_rows,
    Argmax: _fill_argmax,
}
