"""gemma-embedding: EmbeddingGemma (https://arxiv.org/abs/2509.20354).

Different from gemma3: attention sees both ways, in layers with a window half of it to either side; behind the last norm
the rows of a text become one, and up to two matrices (dense_2, dense_3), without anything between, make its embedding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.graph.ops import Activation
from emel.lazy_dataclasses import dataclass
from emel.model.decoder_tensors import attention_tensors, feed_forward_tensors, head_norm_tensors, norm_tensors
from emel.model.encoder import Encoder, EncoderGeometry, read_encoder
from emel.model.parameters import positive_float
from emel.model.rope import LOCAL_FREQUENCIES, Rope, Scaling, factor_tensors, frequency_vector, plain_vector
from emel.model.tensors import matrix, vector
from emel.model.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "gemma-embedding"
PAIRING = Pairing.HALVES
NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
DENSE = ("dense_2.weight", "dense_3.weight")


@dataclass(frozen=True, slots=True)
class Parameters(EncoderGeometry):
    """The hyperparameters of one file; `rope` is that of the layers that see everything."""

    local_rope: Rope
    windows: tuple[int, ...]  # twice how far a token of each layer sees; 0: all
    dense_widths: tuple[int, ...]  # of what the matrices behind the pooling make

    @property
    def embedding_width(self) -> int:
        """Values of a text's embedding."""
        return self.dense_widths[-1] if self.dense_widths else self.d_model


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_encoder(metadata, tensors, NAME, epsilon_key="attention.layer_norm_rms_epsilon", rope_base=1e6)
    local_base = positive_float(metadata, f"{NAME}.rope.freq_base_swa", 10000.0)
    return Parameters(
        **geometry.as_fields(),
        local_rope=replace(geometry.rope, base=local_base, scaling=Scaling.NONE, factor=1.0, attention_factor=1.0),
        windows=read_windows(metadata, NAME, geometry.n_layers, period=6),
        dense_widths=tuple(tensors[name].rows for name in DENSE if name in tensors),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = [
        matrix("token_embd.weight", p.n_vocab, p.d_model),
        vector("output_norm.weight", p.d_model),
        *factor_tensors(p.rope),
    ]
    width = p.d_model
    for name, rows in zip(DENSE, p.dense_widths, strict=False):
        tensors.append(matrix(name, rows, width))
        width = rows
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, *NORMS)
        tensors += attention_tensors(p, layer)
        tensors += head_norm_tensors(p, layer)
        tensors += feed_forward_tensors(p, layer)
    return tensors


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: the inverse frequencies of both kinds of layers, (n_rot / 2,) float64 each."""
    return [frequency_vector(p.rope, file, n_ctx), plain_vector(p.local_rope, LOCAL_FREQUENCIES)]


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    encoder = Encoder(p, tensors)
    builder = encoder.builder
    full, local = encoder.rope_tables(p.windows, p.rope, p.local_rope)
    x = encoder.embed(scale=p.d_model**0.5)
    for layer, block in encoder.layers():
        heads, window = p.heads_of(layer), p.windows[layer]
        q, k, v = encoder.qkv(encoder.norm(x, f"{block}attn_norm"), block)
        q = encoder.norm_rope_store(q, k, v, local if window else full, block, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads, window=window, is_causal=False)
        x = builder.add(x, encoder.norm(encoder.linear(a, f"{block}attn_output"), f"{block}post_attention_norm"))
        h = encoder.feed_forward(encoder.norm(x, f"{block}ffn_norm"), block, Activation.GELU_TANH)
        x = builder.add(x, encoder.norm(h, f"{block}post_ffw_norm"))
    return encoder.finish_pooled(encoder.norm(x, "output_norm"), DENSE[: len(p.dense_widths)])
