"""What the graphs of decoders have in common; an architecture's `build` puts these together with its own steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.builder import GraphBuilder
from emel.graph.ops import Activation
from emel.model.binding import FileWeights
from emel.model.pooling import Pooling
from emel.model.rope import FREQUENCIES, LOCAL_FREQUENCIES
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emel.gguf import TensorInfo
    from emel.graph.attention_ops import Pairing
    from emel.graph.ops import Graph, Heads, Value
    from emel.model.geometry import Geometry
    from emel.model.rope import Rope


class Decoder:
    """Writes a decoder's graph: `builder` for single operations, methods for what all of them do alike."""

    def __init__(self, parameters: Geometry, tensors: Mapping[str, TensorInfo]) -> None:
        self._parameters = parameters
        self._tensors = tensors
        self.builder = GraphBuilder(heads=parameters.heads, n_vocab=parameters.n_vocab)
        self.weights = FileWeights(self.builder, tensors)

    def rope_table(self, rope: Rope, frequencies: str = FREQUENCIES) -> Value:
        """Cosines and sines of every token's position; `frequencies` is the weight made at load."""
        weight = self.builder.vector(frequencies, rope.n_rot // 2, TensorType.F64)
        return self.builder.rope_table(weight, magnitude=rope.magnitude)

    def rope_tables(self, windows: Sequence[int], full: Rope, local: Rope) -> tuple[Value | None, Value | None]:
        """The tables of layers that see everything and of those with a window; None where there are no such layers."""
        return (
            None if all(windows) else self.rope_table(full),
            self.rope_table(local, LOCAL_FREQUENCIES) if any(windows) else None,
        )

    def embed(self, *, scale: float = 1.0) -> Value:
        """(n_tokens, d_model): the residual stream's first value."""
        return self.builder.embed(self.weights.matrix("token_embd.weight"), scale=scale)

    def layers(self) -> Iterator[tuple[int, str]]:
        """Each layer's index and the prefix of its tensors; operations written meanwhile belong to it."""
        for layer in range(self._parameters.n_layers):
            self.builder.begin_layer()
            yield layer, f"blk.{layer}."
        self.builder.end_layers()

    def norm(self, x: Value, name: str) -> Value:
        """The RMS norm `name`."""
        return self.builder.rms_norm(x, self.weights.vector(f"{name}.weight"), self._parameters.norm_epsilon)

    def linear(self, x: Value, name: str) -> Value:
        """x times `name`, plus its bias where the file has one."""
        return self.weights.linear(x, name)

    def qkv(self, h: Value, block: str) -> tuple[Value, Value, Value]:
        """Queries, keys and values of a layer."""
        q, k, v = (self.linear(h, f"{block}attn_{each}") for each in "qkv")
        return q, k, v

    def norm_rope_store(
        self, q: Value, k: Value, v: Value, table: Value | None, block: str, *, pairing: Pairing, heads: Heads
    ) -> Value:
        """The builder's `rope_store` behind a norm of each query and key head."""
        q_norm, k_norm = (self.weights.vector(f"{block}attn_{each}_norm.weight") for each in "qk")
        epsilon = self._parameters.norm_epsilon
        return self.builder.rope_store(
            q, k, v, table, pairing=pairing, heads=heads, q_norm=q_norm, k_norm=k_norm, epsilon=epsilon
        )

    def wanted_rows(self, layer: int, x: Value, attended: Value) -> tuple[Value, Value]:
        """Behind the attention of the last layer only the rows whose logits are wanted are computed."""
        if layer < self._parameters.n_layers - 1 or self._parameters.pools:
            return x, attended
        return self.builder.gather(x), self.builder.gather(attended)

    def feed_forward(self, h: Value, block: str, activation: Activation = Activation.SILU) -> Value:
        """ffn_down(activation(ffn_gate(h)) * ffn_up(h)) (https://arxiv.org/abs/2002.05202)."""
        gate, up = self.linear(h, f"{block}ffn_gate"), self.linear(h, f"{block}ffn_up")
        return self.linear(self.builder.gated(gate, up, activation), f"{block}ffn_down")

    def pool(self, x: Value, *, is_result: bool) -> Value:
        """A row for each text; for CLS and LAST the batch's outputs must be these tokens."""
        is_mean = self._parameters.pools is Pooling.MEAN
        return (self.builder.mean if is_mean else self.builder.gather)(x, is_result=is_result)

    def finish(self, x: Value, *, scale: float = 1.0, cap: float = 0.0, norm: str = "output_norm") -> Graph:
        """The last norm, logits (times `scale`, soft-capped) by the output matrix or the embedding, and their best.

        A graph that pools ends with a row for each text instead.
        """
        h = self.norm(x, norm)
        if self._parameters.pools:
            self.pool(h, is_result=True)
            return self.builder.finish()
        output = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        self.builder.argmax(self.builder.logits(h, self.weights.matrix(output), scale=scale, cap=cap))
        return self.builder.finish()
