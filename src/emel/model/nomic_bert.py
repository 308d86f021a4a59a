"""nomic-bert: Nomic Embed (https://arxiv.org/abs/2402.01613).

Different from bert: RoPE, which pairs the halves of a head, instead of learned positions; a feed-forward gated by SiLU;
queries, keys and values come from one tensor (attn_qkv); no biases but those of the norms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.model.decoder_tensors import Bias, attention_tensors, feed_forward_tensors
from emel.model.encoder import (
    Encoder,
    EncoderGeometry,
    embedding_tensors,
    layer_norm_tensors,
    read_encoder,
    split_qkv,
)
from emel.model.rope import factor_tensors, frequency_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "nomic-bert"
Parameters = EncoderGeometry


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return read_encoder(metadata, tensors, NAME)


def split_tensors(p: Parameters, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors with joined queries, keys and values taken apart."""
    return split_qkv(p, tensors)


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = [*embedding_tensors(p), *factor_tensors(p.rope)]
    for layer in range(p.n_layers):
        block = f"blk.{layer}."
        tensors += attention_tensors(p, layer, bias=Bias.OPTIONAL, output_bias=Bias.OPTIONAL)
        tensors += layer_norm_tensors(f"{block}attn_output_norm", p.d_model)
        tensors += feed_forward_tensors(p, layer, bias=Bias.OPTIONAL)
        tensors += layer_norm_tensors(f"{block}layer_output_norm", p.d_model)
    return tensors


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: the inverse frequencies of RoPE, (n_rot / 2,) float64."""
    return [frequency_vector(p.rope, file, n_ctx)]


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    encoder = Encoder(p, tensors)
    builder = encoder.builder
    table = encoder.rope_table(p.rope)
    x = encoder.embed_texts()
    for _, block in encoder.layers():
        x = encoder.layer_norm(builder.add(x, encoder.attend(x, block, table)), f"{block}attn_output_norm")
        x = encoder.layer_norm(builder.add(x, encoder.feed_forward(x, block)), f"{block}layer_output_norm")
    return encoder.finish_pooled(x)
