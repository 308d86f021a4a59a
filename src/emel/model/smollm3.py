"""smollm3: SmolLM3 (https://huggingface.co/blog/smollm3).

Different from llama: every fourth layer has no positions at all (NoPE, https://arxiv.org/abs/2501.18795); its queries
and keys are not turned. Files hold attn_q and attn_k permuted as those of llama. Long contexts are stretched with YaRN
where a file says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import Bias, attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.geometry import Geometry, read_geometry
from emel.model.rope import frequency_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "smollm3"
PAIRING = Pairing.ADJACENT
NOPE_PERIOD = 4  # files have no key for it
Parameters = Geometry


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return read_geometry(metadata, tensors, NAME)


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "ffn_norm")
        tensors += attention_tensors(p, layer, bias=Bias.OPTIONAL, output_bias=Bias.OPTIONAL)
        tensors += feed_forward_tensors(p, layer, bias=Bias.OPTIONAL)
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
        has_positions = (layer + 1) % NOPE_PERIOD != 0
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = builder.rope_store(q, k, v, table if has_positions else None, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"))
        h = decoder.norm(x, f"{block}ffn_norm")
        x = builder.add(x, decoder.feed_forward(h, block))
    return decoder.finish(x)
