"""qwen3: the dense decoders of Qwen 3 (https://arxiv.org/abs/2505.09388).

Different from llama: each query and key head has an RMS norm before RoPE, which pairs the halves of a head; heads are
as wide as the metadata says, not d_model / n_heads. No biases. Long contexts are stretched with YaRN where a file says
so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import (
    attention_tensors,
    feed_forward_tensors,
    head_norm_tensors,
    norm_tensors,
    outer_tensors,
)
from emel.model.geometry import Geometry, read_geometry
from emel.model.rope import frequency_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "qwen3"
PAIRING = Pairing.HALVES
Parameters = Geometry


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return read_geometry(metadata, tensors, NAME)


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "ffn_norm")
        tensors += attention_tensors(p, layer)
        tensors += head_norm_tensors(p, layer)
        tensors += feed_forward_tensors(p, layer)
    return tensors


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: the inverse frequencies of RoPE, (n_rot / 2,) float64."""
    return [frequency_vector(p.rope, file, n_ctx)]


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    decoder = Decoder(p, tensors)
    builder = decoder.builder
    table = decoder.rope_table(p.rope)
    x = decoder.embed()
    for layer, block in decoder.layers():
        heads = p.heads_of(layer)
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = decoder.norm_rope_store(q, k, v, table, block, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"))
        h = decoder.norm(x, f"{block}ffn_norm")
        x = builder.add(x, decoder.feed_forward(h, block))
    return decoder.finish(x)
