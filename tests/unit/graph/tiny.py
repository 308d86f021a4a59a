"""A small decoder graph of chosen geometry, and seeded weights for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

from emel.graph.attention_ops import Pairing
from emel.graph.builder import GraphBuilder
from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation, Heads
from emel.kernel.packing import Matrix, Vector, pack
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from emel.graph.ops import Graph, Value
    from emel.kernel.packing import PackedWeights
    from emel.kernel.pool import LanePool

Q8, F32, F16 = TensorType.Q8_0, TensorType.F32, TensorType.F16


@dataclass(frozen=True)
class Tiny:
    """Geometry of a tiny decoder; `types` are those of q, k, v, o, gate, up, down and the embedding."""

    n_layers: int = 2
    n_heads: int = 2
    n_kv_heads: int = 1
    head_dim: int = 32
    d_model: int = 64
    d_ff: int = 96
    n_vocab: int = 50
    n_rot: int = 32
    types: tuple[TensorType, ...] = (Q8,) * 8
    has_bias: bool = False
    is_tied: bool = True
    gathers: bool = True  # the last layer computes output rows alone
    norms_heads: bool = False
    rotates: bool = True  # in the second layer
    activation: Activation = Activation.SILU
    has_gate: bool = True
    magnitude: float = 1.0
    n_experts: int = 0  # instead of the feed-forward
    n_chosen: int = 2
    gating: Gating = Gating.SOFTMAX
    n_taps: int = 0  # of a short convolution before each layer
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0
    norms_results: bool = False  # of attention and feed-forward, before they are added
    norms_inputs: bool = True
    has_shared_gate: bool = False  # of the feed-forward
    window: int = 0
    is_causal: bool = True
    cap: float = 0.0
    has_sinks: bool = False

    def build(self) -> Graph:
        heads = Heads(self.n_heads, self.n_kv_heads, self.head_dim)
        b = GraphBuilder(heads=heads, n_vocab=self.n_vocab)
        q_type, k_type, v_type, o_type, gate_type, up_type, down_type, embed_type = self.types
        table = b.rope_table(b.vector("frequencies", self.n_rot // 2, TensorType.F64), magnitude=self.magnitude)
        x = b.embed(b.matrix("embedding", self.n_vocab, self.d_model, embed_type))

        def linear(x_: Value, name: str, rows: int, type_: TensorType) -> Value:
            bias = b.vector(f"{name}.bias", rows) if self.has_bias else None
            return b.linear(x_, b.matrix(name, rows, x_.width, type_), bias)

        def norm_result(x_: Value, which: int) -> Value:
            return b.rms_norm(x_, b.vector(f"{layer}.norm{which}", self.d_model), 1e-5) if self.norms_results else x_

        def norm_input(x_: Value, which: int) -> Value:
            return b.rms_norm(x_, b.vector(f"{layer}.norm{which}", self.d_model), 1e-5) if self.norms_inputs else x_

        for layer in range(self.n_layers):
            b.begin_layer()
            if self.n_taps:
                h = b.rms_norm(x, b.vector(f"{layer}.norm5", self.d_model), 1e-5)
                taps = b.vector(f"{layer}.taps", self.n_taps * self.d_model)
                bias = b.vector(f"{layer}.taps.bias", self.d_model) if self.has_bias else None
                h = b.short_conv(linear(h, f"{layer}.bcx", 3 * self.d_model, q_type), taps, self.n_taps, bias)
                x = b.add(x, linear(h, f"{layer}.conv_out", self.d_model, o_type))
            h = norm_input(x, 1)
            q = linear(h, f"{layer}.q", heads.q_width, q_type)
            k = linear(h, f"{layer}.k", heads.kv_width, k_type)
            v = linear(h, f"{layer}.v", heads.kv_width, v_type)
            q_norm, k_norm = (
                b.vector(f"{layer}.{name}_norm", self.head_dim) if self.norms_heads else None for name in "qk"
            )
            q = b.rope_store(
                q,
                k,
                v,
                table if self.rotates or layer != 1 else None,
                pairing=Pairing.ADJACENT,
                q_norm=q_norm,
                k_norm=k_norm,
                epsilon=1e-5,
            )
            a = b.attention(
                q,
                scale=self.head_dim**-0.5,
                window=self.window,
                is_causal=self.is_causal,
                cap=self.cap,
                sinks=b.vector(f"{layer}.sinks", self.n_heads) if self.has_sinks else None,
            )
            if layer == self.n_layers - 1 and self.gathers:
                x, a = b.gather(x), b.gather(a)
            x = b.add(x, norm_result(linear(a, f"{layer}.o", self.d_model, o_type), 3), scale=self.residual_scale)
            h = norm_input(x, 2)
            if self.n_experts:
                x = b.add(x, self.experts(b, h, layer), scale=self.residual_scale)
                continue
            gate = linear(h, f"{layer}.gate", self.d_ff, gate_type)
            up = linear(h, f"{layer}.up", self.d_ff, up_type) if self.has_gate else None
            down = linear(b.gated(gate, up, self.activation), f"{layer}.down", self.d_model, down_type)
            shared = b.linear(h, b.matrix(f"{layer}.shared", 1, self.d_model, F32)) if self.has_shared_gate else None
            x = b.add(x, norm_result(down, 4), scale=self.residual_scale, gate=shared)
        b.end_layers()
        h = b.rms_norm(x, b.vector("norm", self.d_model), 1e-5)
        if not self.gathers:
            h = b.gather(h)
        name = "embedding" if self.is_tied else "output"
        output = b.matrix(name, self.n_vocab, self.d_model, embed_type)
        b.argmax(b.logits(h, output, scale=self.logit_scale, cap=self.logit_cap))
        return b.finish()

    def experts(self, b: GraphBuilder, h: Value, layer: int) -> Value:
        n = self.n_experts
        scores = b.linear(h, b.matrix(f"{layer}.router", n, self.d_model, F32))
        bias = b.vector(f"{layer}.router.bias", n) if self.has_bias else None
        weights, routing = b.top_k(scores, self.n_chosen, gating=self.gating, scale=0.5, bias=bias)
        rows = b.expert_rows(h, routing)

        def product(x: Value, name: str, n_rows: int, type_: TensorType) -> Value:
            bias = b.vector(f"{layer}.{name}.bias", n * n_rows) if self.has_bias else None
            return b.expert_linear(x, routing, b.matrix(f"{layer}.{name}", n * n_rows, x.width, type_), bias)

        gate, up = (product(rows, name, self.d_ff, self.types[4]) for name in ("gates", "ups"))
        down = product(b.gated(gate, up, self.activation), "downs", self.d_model, self.types[6])
        return b.expert_sum(down, routing, weights)


def raw_weights(graph: Graph, seed: int = 0) -> dict[str, bytes]:
    """Bytes of every weight as a file would hold them."""
    rng = np.random.default_rng(seed)
    raw = {}
    for weight in graph.weights:
        if weight.type is TensorType.F64:
            raw[weight.name] = (10000.0 ** -(np.arange(weight.cols) / weight.cols)).tobytes()
            continue
        scale = 1.0 if not weight.is_packed else 0.5 / np.sqrt(weight.cols)
        values = (rng.standard_normal((weight.rows, weight.cols)) * scale).astype(np.float32)
        if weight.name.endswith(("norm", "norm1", "norm2", "norm3", "norm4", "norm5")):
            values = 1.0 + 0.1 * values
        raw[weight.name] = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(weight.type))).tobytes()
    return raw


def float_weights(graph: Graph, raw: dict[str, bytes]) -> list[np.ndarray]:
    """Weight index -> (rows, cols) values."""
    arrays: list[np.ndarray] = []
    for weight in graph.weights:
        if weight.type is TensorType.F64:
            arrays.append(np.frombuffer(raw[weight.name], np.float64).reshape(1, -1))
            continue
        flat = np.frombuffer(raw[weight.name], np.uint8)
        values = gguf.quants.dequantize(flat, gguf.GGMLQuantizationType(int(weight.type)))
        arrays.append(values.astype(np.float32).reshape(weight.rows, weight.cols))
    return arrays


def pack_weights(graph: Graph, raw: dict[str, bytes], pool: LanePool) -> PackedWeights:
    """The weights as plans want them."""
    matrices = [Matrix(w.name, w.type, w.rows, w.cols, raw[w.name]) for w in graph.weights if w.is_packed]
    vectors = [Vector(w.name, w.type, w.cols, raw[w.name]) for w in graph.weights if not w.is_packed]
    return pack(pool, matrices, vectors)
