"""lfm2: the dense hybrids of LFM2 (https://arxiv.org/abs/2511.23404).

Different from llama: a layer of 0 key heads (`attention.head_count_kv` has a number for each layer) is a gated short
convolution instead of attention, and keeps a small recurrent state instead of keys and values; queries and keys have
an RMS norm in each head before RoPE, which pairs the halves of a head; the last norm is called token_embd_norm.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.graph.spec import MAX_TAPS
from emel.graph.state_ops import StateGeometry
from emel.kernel.packing import Vector
from emel.lazy_dataclasses import dataclass
from emel.model.binding import read_vector
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import (
    Bias,
    attention_tensors,
    feed_forward_tensors,
    head_norm_tensors,
    linear_tensors,
    norm_tensors,
)
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import positive_int
from emel.model.rope import factor_tensors, frequency_vector
from emel.model.tensors import ExpectedTensor, Role, matrix, vector
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph, Value

NAME = "lfm2"
PAIRING = Pairing.HALVES
LAST_NORM = "token_embd_norm"
TAPS = "shortconv.taps"  # made at load: the file's kernel tap by tap


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    n_taps: int  # tokens a convolution sees

    @property
    def state(self) -> StateGeometry | None:
        """The recurrent state: products of every convolution; None without one."""
        n_layers = self.n_kv_heads.count(0)
        return StateGeometry(n_layers, self.d_model, self.n_taps - 1) if n_layers else None

    def has_attention(self, layer: int) -> bool:
        """Whether a layer is attention; else it is a convolution."""
        return self.n_kv_heads[layer] > 0


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return read_hybrid(metadata, tensors, NAME)


def read_hybrid(metadata: Metadata, tensors: Mapping[str, TensorInfo], name: str) -> Parameters:
    """What the dense hybrids and those with experts have in common."""
    geometry = read_geometry(metadata, tensors, name, rope_base=1e6, least_kv_heads=0)
    return Parameters(
        **geometry.as_fields(), n_taps=positive_int(metadata, f"{name}.shortconv.l_cache", at_most=MAX_TAPS)
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = hybrid_tensors(p)
    for layer in range(p.n_layers):
        tensors += feed_forward_tensors(p, layer)
    return tensors


def hybrid_tensors(p: Parameters) -> list[ExpectedTensor]:
    """All but the feed-forwards."""
    tensors = [
        matrix("token_embd.weight", p.n_vocab, p.d_model),
        vector(f"{LAST_NORM}.weight", p.d_model),
        matrix("output.weight", p.n_vocab, p.d_model, is_required=False),
        *factor_tensors(p.rope),
    ]
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "ffn_norm")
        if p.has_attention(layer):
            tensors += attention_tensors(p, layer)
            tensors += head_norm_tensors(p, layer)
        else:
            tensors += convolution_tensors(p, layer)
    return tensors


def convolution_tensors(p: Parameters, layer: int) -> list[ExpectedTensor]:
    """A gated short convolution; its kernel is (d_model, n_taps) in files, the oldest tap first."""
    block = f"blk.{layer}.shortconv."
    return [
        ExpectedTensor(f"{block}conv.weight", (p.d_model, p.n_taps), role=Role.PARAMETER),
        vector(f"{block}conv.bias", p.d_model, is_required=False),
        *linear_tensors(f"{block}in_proj", 3 * p.d_model, p.d_model, Bias.OPTIONAL),
        *linear_tensors(f"{block}out_proj", p.d_model, p.d_model, Bias.OPTIONAL),
    ]


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: the inverse frequencies of RoPE, and kernels of convolutions tap by tap."""
    vectors = [frequency_vector(p.rope, file, n_ctx)]
    for layer in range(p.n_layers):
        if not p.has_attention(layer):
            kernel = read_vector(file, f"blk.{layer}.shortconv.conv.weight")
            taps = array("f", (value for tap in range(p.n_taps) for value in kernel[tap :: p.n_taps]))
            vectors.append(Vector(f"blk.{layer}.{TAPS}", TensorType.F32, len(taps), taps))
    return vectors


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    decoder = Decoder(p, tensors)
    builder = decoder.builder
    table = decoder.rope_table(p.rope)
    x = decoder.embed()
    for layer, block in decoder.layers():
        x = mix_tokens(decoder, p, layer, x, table)
        x = builder.add(x, decoder.feed_forward(decoder.norm(x, f"{block}ffn_norm"), block))
    return decoder.finish(x, norm=LAST_NORM)


def mix_tokens(decoder: Decoder, p: Parameters, layer: int, x: Value, table: Value) -> Value:
    """The stream behind a layer's attention or convolution."""
    builder, block = decoder.builder, f"blk.{layer}."
    h = decoder.norm(x, f"{block}attn_norm")
    if p.has_attention(layer):
        heads = p.heads_of(layer)
        q, k, v = decoder.qkv(h, block)
        q = decoder.norm_rope_store(q, k, v, table, block, pairing=PAIRING, heads=heads)
        mixed, last = builder.attention(q, scale=p.head_dim**-0.5, heads=heads), f"{block}attn_output"
    else:
        taps = builder.vector(block + TAPS, p.n_taps * p.d_model)
        bias = decoder.weights.bias(f"{block}shortconv.conv")
        mixed = builder.short_conv(decoder.linear(h, f"{block}shortconv.in_proj"), taps, p.n_taps, bias)
        last = f"{block}shortconv.out_proj"
    x, mixed = decoder.wanted_rows(layer, x, mixed)
    return builder.add(x, decoder.linear(mixed, last))
