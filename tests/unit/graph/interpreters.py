"""Two interpreters of the same arithmetic: one of a graph as built, value by value; one of plan records in an arena.

They share the primitives below, so that results are equal bit for bit exactly when fusing, liveness, placement and
packing changed nothing. The arena starts as NaN, and what an operation writes is NaN while it reads: a value read
before it is written, after it was overwritten, or while another lane could be writing over it, shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emel._native import abi
from emel._native.abi import Activations
from emel.graph import ops
from emel.graph.attention_ops import Attention, RopeStore, RopeTable
from emel.graph.expert_ops import ExpertLinear, ExpertRows, ExpertSum, Gating, TopK
from emel.graph.state_ops import ShortConv

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from emel.graph.assembler import Assembly
    from emel.graph.capacity import Capacity
    from emel.graph.ops import Graph

Array = np.ndarray


class FakeSizes:
    """Sizes for the interpreter: a quantised activation is kept as plain float32, with a header of 64 bytes."""

    @staticmethod
    def quantized_bytes(width: int, _activations: Activations = Activations.INT16, /) -> int:
        return 4 * width + 64

    @staticmethod
    def routing_bytes(n_rows: int, k: int, n_experts: int, /) -> int:
        return 4 * n_rows * k + 4 * n_experts

    @staticmethod
    def attention_scratch_bytes(max_tokens: int, n_heads: int, n_kv_heads: int, head_dim: int, n_blocks: int, /) -> int:
        return 4 * max_tokens * n_heads + n_blocks


@dataclass
class Step:
    """One batch of a single sequence, with the KV cache that outlives it."""

    tokens: list[int]
    first_position: int = 0
    output_rows: list[int] = field(default_factory=list)
    cache: dict[int, tuple[list[Array], list[Array]]] = field(default_factory=dict)
    states: dict[int, Array] = field(default_factory=dict)


# ---- primitives


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    mean = (x.astype(np.float64) ** 2).mean(axis=1, keepdims=True)
    return (x / np.sqrt(mean + np.float32(epsilon)) * weight).astype(np.float32)


def add(stream: Array, delta: Array, scale: float, gate: Array | None) -> Array:
    by = np.float32(scale) if gate is None else np.float32(scale) / (1 + np.exp(-gate))
    return (stream + by * delta).astype(np.float32)


def adjusted(y: Array, scale: float, cap: float) -> Array:
    y = y * np.float32(scale)
    return np.tanh(y / np.float32(cap)) * np.float32(cap) if cap else y


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    rows = [np.array([np.dot(row, w) for w in weight], np.float32) for row in x]  # never depends on the batch
    out = np.array(rows, np.float32).reshape(len(x), len(weight))
    return out if bias is None else out + bias[0]


def rope_table(step: Step, frequencies: Array, magnitude: float) -> Array:
    angles = [(step.first_position + i) * frequencies[0] for i in range(len(step.tokens))]
    return np.array([np.stack([np.cos(a), np.sin(a)], axis=1).ravel() for a in angles], np.float32) * np.float32(
        magnitude
    )


def norm_heads(x: Array, weight: Array | None, epsilon: float) -> Array:
    return x if weight is None else rms_norm(x.reshape(-1, len(weight)), weight, epsilon).reshape(x.shape)


def rotate(x: Array, table: Array | None, head_dim: int) -> Array:
    if table is None:
        return x
    out = x.copy().reshape(len(x), -1, head_dim)
    n_rot = table.shape[1]
    cos, sin = table[:, None, 0::2], table[:, None, 1::2]
    even, odd = out[:, :, 0:n_rot:2].copy(), out[:, :, 1:n_rot:2].copy()
    out[:, :, 0:n_rot:2] = even * cos - odd * sin
    out[:, :, 1:n_rot:2] = even * sin + odd * cos
    return out.reshape(x.shape)


def store(step: Step, layer: int, k: Array, v: Array) -> None:
    keys, values = step.cache.setdefault(layer, ([], []))
    del keys[step.first_position :], values[step.first_position :]
    keys.extend(k.copy())
    values.extend(v.copy())


class Look(NamedTuple):
    """How an attention looks at its keys."""

    scale: float
    window: int
    is_causal: bool
    cap: float
    sinks: Array | None


def attention(step: Step, layer: int, q: Array, heads: ops.Heads, look: Look) -> Array:
    keys, values = step.cache[layer]
    out = np.zeros_like(q).reshape(len(q), heads.n_heads, heads.head_dim)
    group = heads.n_heads // heads.n_kv_heads
    for token in range(len(q)):
        position = step.first_position + token
        before = look.window - 1 if look.is_causal else look.window // 2
        after = 0 if look.is_causal else before if look.window else len(keys)
        seen = slice(max(0, position - before) if look.window else 0, position + after + 1)
        k = np.array(keys[seen]).reshape(-1, heads.n_kv_heads, heads.head_dim)
        v = np.array(values[seen]).reshape(-1, heads.n_kv_heads, heads.head_dim)
        for head in range(heads.n_heads):
            query = q[token].reshape(heads.n_heads, heads.head_dim)[head]
            scores = np.array([np.dot(key, query) for key in k[:, head // group]], np.float32) * np.float32(look.scale)
            if look.cap:
                scores = np.tanh(scores / np.float32(look.cap)) * np.float32(look.cap)
            weights = np.exp(scores - scores.max())
            sink = np.float32(0) if look.sinks is None else np.exp(look.sinks[head] - scores.max())
            out[token, head] = (weights[:, None] * v[:, head // group]).sum(axis=0) / (weights.sum() + sink)
    return out.reshape(q.shape)


def gated(activation: ops.Activation, gate: Array, up: Array | None) -> Array:
    """Not the activations' own formulas: any that tell them apart will do here."""
    out = gate / (1 + np.exp(-gate)) + np.float32(activation.value)
    return (out if up is None else out * up).astype(np.float32)


def short_conv(step: Step, layer: int, x: Array, taps: Array, bias: Array | None) -> Array:
    """`taps` (n_taps, n)."""
    b, c, values = np.split(x, 3, axis=1)
    past = step.states.get(layer) if step.first_position else None
    if past is None:
        past = np.zeros((len(taps) - 1, taps.shape[1]), np.float32)
    products = np.concatenate([past, b * values])
    step.states[layer] = products[len(x) :].copy()
    out = np.zeros_like(values) if bias is None else np.tile(bias, (len(x), 1))
    for j, tap in enumerate(taps):
        out = out + products[j : j + len(x)] * tap
    return (c * out).astype(np.float32)


def top_k(scores: Array, k: int, gating: Gating, is_normalized: bool, scale: float, bias: Array | None) -> list[Array]:
    """Weights, and the experts of each row as float32; not the gatings' own formulas."""
    scores = np.exp(scores / 4) + np.float32(gating.value)
    choices = scores if bias is None else scores + bias
    ids = np.argsort(-choices, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(scores, ids, axis=1)
    if is_normalized:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return [(weights * np.float32(scale)).astype(np.float32), ids.astype(np.float32)]


def expert_linear(x: Array, routing: Array, weight: Array, bias: Array | None, n_experts: int) -> Array:
    """Here the grouped rows simply stand in the order of their choices."""
    rows = len(weight) // n_experts
    out = []
    for row, expert in zip(x, routing.ravel().astype(int), strict=True):
        part = slice(expert * rows, (expert + 1) * rows)
        out.append(linear(row[None], weight[part], None if bias is None else bias[:, part])[0])
    return np.array(out, np.float32).reshape(len(x), rows)


def expert_sum(x: Array, weights: Array) -> Array:
    out = np.zeros((len(weights), x.shape[1]), np.float32)
    for rank in range(weights.shape[1]):
        out += x[rank :: weights.shape[1]] * weights[:, rank : rank + 1]
    return out


# ---- the graph as built


def run_graph(  # noqa: PLR0912, PLR0915 - a branch for each kind
    graph: Graph, weights: list[Array], step: Step
) -> Array:
    """(n_outputs, n_vocab) logits of an unfused graph."""
    values: dict[int, Array] = {}
    logits = None
    for op in graph.operations:
        read = [values[value.index] for value in op.inputs()]
        if isinstance(op, ops.Embed):
            values[op.out.index] = weights[op.weight.index][step.tokens] * np.float32(op.scale)
        elif isinstance(op, RopeTable):
            values[op.out.index] = rope_table(step, weights[op.frequencies.index], op.magnitude)
        elif isinstance(op, ops.Add):
            values[op.out.index] = add(read[0], read[1], op.scale, read[2] if len(read) > 2 else None)
        elif isinstance(op, ops.RmsNorm):
            assert op.out is not None
            values[op.out.index] = rms_norm(read[0], weights[op.weight.index][0], op.epsilon)
        elif isinstance(op, TopK):
            bias = None if op.bias is None else weights[op.bias.index][0]
            chosen = top_k(read[0], op.routing.per_row, op.gating, op.is_normalized, op.scale, bias)
            values[op.weights_out.index], values[op.routing.index] = chosen
        elif isinstance(op, ExpertRows):
            values[op.out.index] = np.repeat(read[0], op.routing.per_row, axis=0)
        elif isinstance(op, ExpertSum):
            values[op.out.index] = expert_sum(read[0], read[2])
        elif isinstance(op, ExpertLinear):
            (part,) = op.parts
            bias = None if part.bias is None else weights[part.bias.index]
            n_experts = op.routing.width
            values[part.out.index] = expert_linear(read[0], read[1], weights[part.weight.index], bias, n_experts)
        elif isinstance(op, ops.Linear):
            (part,) = op.parts
            bias = None if part.bias is None else weights[part.bias.index]
            out = linear(read[0], weights[part.weight.index], bias)
            values[part.out.index] = logits = adjusted(out, op.scale, op.cap)
        elif isinstance(op, RopeStore):
            norms = [None if norm is None else weights[norm.index][0] for norm in (op.q_norm, op.k_norm)]
            table = read[3] if len(read) > 3 else None
            q, k = (
                rotate(norm_heads(x, norm, op.epsilon), table, op.heads.head_dim)
                for x, norm in zip(read, norms, strict=False)
            )
            store(step, op.kv_layer, k, read[2])
            values[op.rotated.index] = q
        elif isinstance(op, Attention):
            sinks = None if op.sinks is None else weights[op.sinks.index][0]
            look = Look(op.scale, op.window, op.is_causal, op.cap, sinks)
            values[op.out.index] = attention(step, op.kv_layer, read[0], op.heads, look)
        elif isinstance(op, ops.Gated):
            assert op.out is not None
            values[op.out.index] = gated(op.activation, read[0], read[1] if len(read) > 1 else None)
        elif isinstance(op, ShortConv):
            taps = weights[op.taps.index].reshape(op.n_taps, -1)
            bias = None if op.bias is None else weights[op.bias.index][0]
            values[op.out.index] = short_conv(step, op.state_layer, read[0], taps, bias)
        elif isinstance(op, ops.Gather):
            values[op.out.index] = read[0][step.output_rows]
        else:
            assert isinstance(op, ops.Argmax)
    assert logits is not None
    return logits


# ---- the records


class Arena:
    """Bytes that start as NaN; extents are checked, and a row's quantised form has a stride of its own."""

    def __init__(self, n_bytes: int) -> None:
        assert n_bytes % 4 == 0
        self.words = np.full(n_bytes // 4, np.nan, np.float32)

    def _rows(self, offset: int, n_rows: int, row_bytes: int) -> Array:
        assert offset % 64 == 0
        assert offset + n_rows * row_bytes <= self.words.nbytes
        return self.words[offset // 4 : (offset + n_rows * row_bytes) // 4].reshape(n_rows, row_bytes // 4)

    def blank(self, view: Array) -> Array:
        view[:] = np.nan
        return view

    def f32(self, offset: int, n_rows: int, width: int) -> Array:
        return self._rows(offset, n_rows, 4 * width)

    def quantized(self, offset: int, n_rows: int, width: int) -> Array:
        return self._rows(offset, n_rows, FakeSizes.quantized_bytes(width))[:, 16:]


def run_records(
    assembly: Assembly, weights: list[Array], step: Step, arena: Arena, *, reverse_unmet: bool = False
) -> Array:
    """Logits by the records alone; `reverse_unmet` runs operations between which lanes do not meet back to front."""
    logits: list[Array] = []
    blocks = [weight.type.is_quantized for weight in assembly.graph.weights]
    for group in _groups(assembly.records):
        for record in reversed(group) if reverse_unmet else group:
            _run_record(record, weights, blocks, step, arena, assembly.capacity, logits)
    return logits[0]


def _groups(records: ctypes.Array[abi.Op]) -> list[list[abi.Op]]:
    groups: list[list[abi.Op]] = [[]]
    for record in records:
        groups[-1].append(record)
        if not record.flags & abi.OpFlag.NO_BARRIER:
            groups.append([])
    assert not groups.pop(), "the last record must end a group"
    return groups


def _run_record(  # noqa: PLR0912, PLR0915 - a branch for each kind
    r: abi.Op,
    weights: list[Array],
    blocks: Sequence[bool],
    step: Step,
    arena: Arena,
    capacity: Capacity,
    logits: list[Array],
) -> None:
    n_rows = len(step.output_rows) if r.flags & abi.OpFlag.OUTPUT_ROWS else len(step.tokens)
    assert n_rows <= (capacity.max_outputs if r.flags & abi.OpFlag.OUTPUT_ROWS else capacity.max_tokens)
    n = r.dim[0]
    if r.kind == abi.OpKind.EMBED:
        values = weights[r.weight[0]]
        arena.f32(r.out[0], n_rows, values.shape[1])[:] = values[step.tokens] * np.float32(r.param[0])
    elif r.kind == abi.OpKind.ROPE_TABLE:
        table = rope_table(step, weights[r.weight[0]], r.param[0])
        arena.f32(r.out[0], n_rows, table.shape[1])[:] = table
    elif r.kind == abi.OpKind.RMS_NORM:
        x = arena.f32(r.in_[0], n_rows, n)
        if r.in_[1] != abi.NONE:
            x[:] = add(x, arena.f32(r.in_[1], n_rows, n), r.param[1], None)
        outs = _blank_both(r, arena, n_rows, n)
        _write(outs, rms_norm(x, weights[r.weight[0]][0], r.param[0]))
    elif r.kind == abi.OpKind.MATMUL:
        kinds = {blocks[r.weight[part]] for part in range(r.dim[1])}
        assert len(kinds) == 1
        parts = [(part, weights[r.weight[part]]) for part in range(r.dim[1])]
        outs = [
            np.empty((n_rows, len(w)), np.float32)
            if r.out[part] == abi.LOGITS
            else arena.blank(arena.f32(r.out[part], n_rows, len(w)))
            for part, w in parts
        ]
        x = (arena.quantized if kinds.pop() else arena.f32)(r.in_[0], n_rows, n).copy()
        for (part, w), out in zip(parts, outs, strict=True):
            bias = None if r.weight[4 + part] == abi.NO_WEIGHT else weights[r.weight[4 + part]]
            out[:] = adjusted(linear(x, w, bias), r.param[0], r.param[1])
            if r.out[part] == abi.LOGITS:
                logits.append(out)
    elif r.kind == abi.OpKind.ROPE_STORE:
        n_heads, n_kv_heads, head_dim, n_rot, pairing, layer = r.dim[:6]
        assert pairing == 0
        q, k = arena.f32(r.in_[0], n_rows, n_heads * head_dim), arena.f32(r.in_[1], n_rows, n_kv_heads * head_dim)
        turns = arena.f32(r.in_[3], n_rows, n_rot) if n_rot else None
        for x, index in ((q, r.weight[0]), (k, r.weight[1])):
            norm = None if index == abi.NO_WEIGHT else weights[index][0]
            x[:] = rotate(norm_heads(x, norm, r.param[0]), turns, head_dim)
        store(step, layer, k, arena.f32(r.in_[2], n_rows, n_kv_heads * head_dim))
    elif r.kind == abi.OpKind.ATTENTION:
        heads = ops.Heads(*r.dim[:3])
        scratch = FakeSizes.attention_scratch_bytes(
            capacity.max_tokens, heads.n_heads, heads.n_kv_heads, heads.head_dim, capacity.n_blocks
        )
        arena.words[r.in_[1] // 4 : (r.in_[1] + scratch) // 4] = np.nan
        out = arena.blank(arena.f32(r.out[0], n_rows, heads.q_width))
        q = arena.f32(r.in_[0], n_rows, heads.q_width)
        sinks = None if r.weight[0] == abi.NO_WEIGHT else weights[r.weight[0]][0]
        look = Look(r.param[0], r.dim[4], not r.dim[5], r.param[1], sinks)
        out[:] = attention(step, r.dim[3], q, heads, look)
    elif r.kind == abi.OpKind.QUANTIZE:
        n_rows *= r.dim[2]
        arena.blank(arena.quantized(r.out[0], n_rows, n))[:] = arena.f32(r.in_[0], n_rows, n)
    elif r.kind == abi.OpKind.TOP_K:
        bias = None if r.weight[0] == abi.NO_WEIGHT else weights[r.weight[0]][0]
        scores = arena.f32(r.in_[0], n_rows, n)
        chosen = top_k(scores, r.dim[1], Gating(r.dim[2]), bool(r.dim[3]), r.param[0], bias)
        for offset, values in zip(r.out[:2], chosen, strict=True):
            arena.blank(arena.f32(offset, n_rows, r.dim[1]))[:] = values
    elif r.kind == abi.OpKind.EXPERT_ROWS:
        view = arena.quantized if r.dim[3] else arena.f32
        arena.blank(view(r.out[0], n_rows * r.dim[1], n))[:] = np.repeat(view(r.in_[0], n_rows, n), r.dim[1], axis=0)
    elif r.kind == abi.OpKind.EXPERT_SUM:
        out = arena.blank(arena.f32(r.out[0], n_rows, n))
        weighted = arena.f32(r.in_[2], n_rows, r.dim[1])
        out[:] = expert_sum(arena.f32(r.in_[0], n_rows * r.dim[1], n), weighted)
    elif r.kind == abi.OpKind.EXPERT_MATMUL:
        n_pairs, routing = n_rows * r.dim[2], arena.f32(r.in_[1], n_rows, r.dim[2])
        for part in range(r.dim[1]):
            w = weights[r.weight[part]]
            bias = None if r.weight[4 + part] == abi.NO_WEIGHT else weights[r.weight[4 + part]]
            out = arena.blank(arena.f32(r.out[part], n_pairs, len(w) // r.dim[3]))
            x = (arena.quantized if blocks[r.weight[part]] else arena.f32)(r.in_[0], n_pairs, n)
            out[:] = expert_linear(x, routing, w, bias, r.dim[3])
    elif r.kind == abi.OpKind.GATED:
        n_rows *= r.dim[2]
        outs = _blank_both(r, arena, n_rows, n)
        up = None if r.in_[1] == abi.NONE else arena.f32(r.in_[1], n_rows, n)
        _write(outs, gated(ops.Activation(r.dim[1]), arena.f32(r.in_[0], n_rows, n), up))
    elif r.kind == abi.OpKind.ADD:
        gate = None if r.in_[2] == abi.NONE else arena.f32(r.in_[2], n_rows, 1)
        total = add(arena.f32(r.in_[0], n_rows, n), arena.f32(r.in_[1], n_rows, n), r.param[0], gate)
        arena.blank(arena.f32(r.out[0], n_rows, n))[:] = total
    elif r.kind == abi.OpKind.SHORT_CONV:
        taps = weights[r.weight[0]].reshape(r.dim[1], n)
        bias = None if r.weight[1] == abi.NO_WEIGHT else weights[r.weight[1]][0]
        out = arena.blank(arena.f32(r.out[0], n_rows, n))
        out[:] = short_conv(step, r.dim[2], arena.f32(r.in_[0], n_rows, 3 * n), taps, bias)
    elif r.kind == abi.OpKind.GATHER:
        out = arena.blank(arena.f32(r.out[0], len(step.output_rows), n))
        out[:] = arena.f32(r.in_[0], n_rows, n)[step.output_rows]
    else:
        assert r.kind == abi.OpKind.ARGMAX


def _blank_both(r: abi.Op, arena: Arena, n_rows: int, width: int) -> list[Array]:
    outs = []
    if r.out[0] != abi.NONE:
        outs.append(arena.blank(arena.f32(r.out[0], n_rows, width)))
    if r.out[1] != abi.NONE:
        outs.append(arena.blank(arena.quantized(r.out[1], n_rows, width)))
    assert outs
    return outs


def _write(outs: list[Array], values: Array) -> None:
    for out in outs:
        out[:] = values
