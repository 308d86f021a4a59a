"""Writes llama GGUFs small enough to compute in a blink: seeded random weights, any block format and geometry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

from model.gguf_writing import finish
from model.random_weights import add_byte_vocabulary, random_matrix, random_vector

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a tiny model looks like. Widths that a block format spans must be multiples of its block of 32."""

    n_layers: int = 2
    d_model: int = 128
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    d_ff: int = 192
    n_vocab: int = 320
    n_ctx: int = 512
    tied: bool = True
    biases: bool = False
    rope_factors: bool = False
    rope_scale: float | None = None
    embedding_type: str | None = None


def write_tiny_llama(path: Path, geometry: Geometry, weight_type: str, seed: int = 0) -> None:
    """Writes one model; weight_type is a GGUF type name such as "Q4_1" for every matrix."""
    writer = gguf.GGUFWriter(path, "llama")
    _add_hyperparameters(writer, geometry)
    add_byte_vocabulary(writer, geometry.n_vocab)
    _TensorSource(writer, geometry, gguf.GGMLQuantizationType[weight_type], seed).add_all()
    finish(writer)


def _add_hyperparameters(writer: gguf.GGUFWriter, geometry: Geometry) -> None:
    writer.add_name("tiny llama")
    writer.add_block_count(geometry.n_layers)
    writer.add_context_length(geometry.n_ctx)
    writer.add_embedding_length(geometry.d_model)
    writer.add_feed_forward_length(geometry.d_ff)
    writer.add_head_count(geometry.n_heads)
    writer.add_head_count_kv(geometry.n_kv_heads)
    writer.add_key_length(geometry.head_dim)
    writer.add_value_length(geometry.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(geometry.head_dim)
    writer.add_vocab_size(geometry.n_vocab)
    if geometry.rope_scale is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(geometry.rope_scale)


class _TensorSource:
    def __init__(
        self, writer: gguf.GGUFWriter, geometry: Geometry, weight_type: gguf.GGMLQuantizationType, seed: int
    ) -> None:
        self._writer, self._geometry, self._type = writer, geometry, weight_type
        self._random = np.random.default_rng(seed)

    def add_all(self) -> None:
        """Every tensor the architecture reads, in the usual order."""
        g = self._geometry
        embedding_type = gguf.GGMLQuantizationType[g.embedding_type] if g.embedding_type else self._type
        self._matrix("token_embd", g.n_vocab, g.d_model, embedding_type)
        self._vector("output_norm.weight", g.d_model, around=1.0)
        if not g.tied:
            self._matrix("output", g.n_vocab, g.d_model, embedding_type)
        if g.rope_factors:
            factors = np.geomspace(1.0, 8.0, g.head_dim // 2).astype(np.float32)
            self._writer.add_tensor("rope_freqs.weight", factors)
        for layer in range(g.n_layers):
            self._add_layer(f"blk.{layer}.")

    def _add_layer(self, block: str) -> None:
        g = self._geometry
        self._vector(block + "attn_norm.weight", g.d_model, around=1.0)
        self._vector(block + "ffn_norm.weight", g.d_model, around=1.0)
        for name, rows, cols in (
            ("attn_q", g.n_heads * g.head_dim, g.d_model),
            ("attn_k", g.n_kv_heads * g.head_dim, g.d_model),
            ("attn_v", g.n_kv_heads * g.head_dim, g.d_model),
            ("attn_output", g.d_model, g.n_heads * g.head_dim),
            ("ffn_gate", g.d_ff, g.d_model),
            ("ffn_up", g.d_ff, g.d_model),
            ("ffn_down", g.d_model, g.d_ff),
        ):
            self._matrix(block + name, rows, cols, self._type)
            if g.biases and name.startswith("attn_"):
                self._vector(f"{block}{name}.bias", rows, around=0.0)

    def _matrix(self, name: str, rows: int, cols: int, type_: gguf.GGMLQuantizationType) -> None:
        self._writer.add_tensor(f"{name}.weight", random_matrix(self._random, (rows, cols), type_), raw_dtype=type_)

    def _vector(self, name: str, n: int, around: float) -> None:
        self._writer.add_tensor(name, random_vector(self._random, n, around))
