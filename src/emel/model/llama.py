"""llama: the decoder of Llama 1 to 3 (https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2407.21783).

Pre-norm blocks of grouped-query attention with RoPE and a SwiGLU feed-forward; no norm on queries or keys. GGUF files
of this architecture hold attn_q and attn_k permuted so that RoPE pairs adjacent dimensions. SmolLM, TinyLlama, Mistral
and others use it too. What differs between files: tied or own output matrix, biases, a sliding window over every layer
(Mistral 7B 0.1, https://arxiv.org/abs/2310.06825), per-frequency factors (rope_freqs.weight, Llama 3.1), scaled
positions, a mixture of experts as feed-forward (Mixtral, https://arxiv.org/abs/2401.04088), whose weights sum up to 1
for each token. What the other architectures' headers say differs from llama differs from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import Bias, attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.experts import Experts, expert_tensors, mixture, read_experts
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import non_negative_int
from emel.model.rope import frequency_vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "llama"
PAIRING = Pairing.ADJACENT


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    window: int  # keys a token sees, its own included; 0: all
    experts: Experts | None  # None: feed-forwards are dense


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME)
    experts = None
    if metadata.get_int(f"{NAME}.expert_count", 0):
        experts = read_experts(metadata, NAME, d_model=geometry.d_model, d_ff=geometry.d_ff[0], is_normalized=True)
    return Parameters(
        **geometry.as_fields(),
        experts=experts,
        window=non_negative_int(metadata, f"{NAME}.attention.sliding_window", 0),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "ffn_norm")
        tensors += attention_tensors(p, layer, bias=Bias.OPTIONAL, output_bias=Bias.OPTIONAL)
        if p.experts is None:
            tensors += feed_forward_tensors(p, layer, bias=Bias.OPTIONAL)
        else:
            tensors += expert_tensors(p, p.experts, layer)
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
        q = builder.rope_store(q, k, v, table, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads, window=p.window)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"))
        h = decoder.norm(x, f"{block}ffn_norm")
        x = builder.add(x, mixture(decoder, h, block, p.experts) if p.experts else decoder.feed_forward(h, block))
    return decoder.finish(x)
