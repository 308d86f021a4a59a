"""granite: the dense decoders of Granite 3 (https://github.com/ibm-granite/granite-3.0-language-models).

Different from llama: four multipliers (https://arxiv.org/abs/2203.03466): of the embeddings, of attention scores in
place of 1 / sqrt(head_dim), of what every block adds to the residual stream, and a divisor of the logits. A file may
turn RoPE off (rope.scaling.finetuned false).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import Bias, attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.geometry import Geometry, read_geometry
from emel.model.multipliers import Multipliers, read_multipliers
from emel.model.rope import frequency_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "granite"
PAIRING = Pairing.ADJACENT


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    multipliers: Multipliers
    has_positions: bool


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME)
    return Parameters(
        **geometry.as_fields(),
        multipliers=read_multipliers(metadata, NAME, geometry.head_dim),
        has_positions=metadata.get_bool(f"{NAME}.rope.scaling.finetuned", True),
    )


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
    builder, times = decoder.builder, p.multipliers
    table = decoder.rope_table(p.rope) if p.has_positions else None
    x = decoder.embed(scale=times.embedding)
    for layer, block in decoder.layers():
        heads = p.heads_of(layer)
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = builder.rope_store(q, k, v, table, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=times.scores, heads=heads)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"), scale=times.residual)
        h = decoder.norm(x, f"{block}ffn_norm")
        x = builder.add(x, decoder.feed_forward(h, block), scale=times.residual)
    return decoder.finish(x, scale=times.logits)
