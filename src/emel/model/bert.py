"""bert: BERT and the sentence encoders built on it (https://arxiv.org/abs/1810.04805, https://arxiv.org/abs/1908.10084).

Different from llama: a token's embedding is that of its id, of its position and of its type (only the first type is
used), summed; layer norms with biases stand behind embeddings and blocks; attention sees both ways, without RoPE; the
feed-forward is two matrices with GELU (of the error function) between; matrices have biases. One row for each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.ops import Activation
from emel.model.decoder_tensors import Bias, attention_tensors, linear_tensors
from emel.model.encoder import (
    POSITIONS,
    Encoder,
    EncoderGeometry,
    embedding_tensors,
    layer_norm_tensors,
    read_encoder,
    split_qkv,
)
from emel.model.tensors import ExpectedTensor, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector

NAME = "bert"
Parameters = EncoderGeometry


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return read_encoder(metadata, tensors, NAME)


def split_tensors(p: Parameters, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors with joined queries, keys and values taken apart."""
    return split_qkv(p, tensors)


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = embedding_tensors(p)
    tensors.append(ExpectedTensor(POSITIONS, (p.n_ctx, p.d_model), role=Role.VECTOR))
    for layer in range(p.n_layers):
        block, d_ff = f"blk.{layer}.", p.d_ff[layer]
        tensors += attention_tensors(p, layer, bias=Bias.OPTIONAL, output_bias=Bias.OPTIONAL)
        tensors += layer_norm_tensors(f"{block}attn_output_norm", p.d_model)
        tensors += linear_tensors(f"{block}ffn_up", d_ff, p.d_model, Bias.OPTIONAL)
        tensors += linear_tensors(f"{block}ffn_down", p.d_model, d_ff, Bias.OPTIONAL)
        tensors += layer_norm_tensors(f"{block}layer_output_norm", p.d_model)
    return tensors


def derived_vectors(_p: Parameters, _file: GgufFile, _n_ctx: int) -> list[Vector]:
    """Nothing is computed at load."""
    return []


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    encoder = Encoder(p, tensors)
    builder = encoder.builder
    x = encoder.embed_texts()
    for _, block in encoder.layers():
        x = encoder.layer_norm(builder.add(x, encoder.attend(x, block, None)), f"{block}attn_output_norm")
        h = builder.gated(encoder.linear(x, f"{block}ffn_up"), None, Activation.GELU_ERF)
        x = encoder.layer_norm(builder.add(x, encoder.linear(h, f"{block}ffn_down")), f"{block}layer_output_norm")
    return encoder.finish_pooled(x)
