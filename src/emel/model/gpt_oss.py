"""gpt-oss: OpenAI's open-weight models (https://arxiv.org/abs/2508.10925, https://github.com/openai/gpt-oss).

Different from llama: every second layer, the first one included, sees a sliding window; each head has a sink, a score
without a value that takes a share of the softmax; RoPE pairs the halves of a head and is stretched by YaRN, whose ramp
keeps fractions of a dimension; all matrices have biases; every feed-forward is a mixture of experts, MXFP4 in the
published files, weighed by a softmax over those chosen, with a clamped swish.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.graph.expert_ops import Gating
from emel.graph.ops import Activation
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import Bias, attention_tensors, norm_tensors, outer_tensors
from emel.model.experts import Experts, expert_tensors, mixture, read_experts
from emel.model.geometry import Geometry, read_geometry
from emel.model.rope import frequency_vector
from emel.model.tensors import vector
from emel.model.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "gpt-oss"
PAIRING = Pairing.HALVES
# https://github.com/openai/gpt-oss/blob/main/gpt_oss/torch/model.py, swiglu
SWISH_ALPHA, SWISH_LIMIT = 1.702, 7.0


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    windows: tuple[int, ...]  # keys a token of each layer sees; 0: all
    experts: Experts


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME, rope_base=150000.0)
    experts = read_experts(
        metadata,
        NAME,
        d_model=geometry.d_model,
        d_ff=geometry.d_ff[0],
        is_normalized=False,
        gating=Gating.SOFTMAX_OF_CHOSEN,
    )
    fields = geometry.as_fields() | {"rope": replace(geometry.rope, keep_fractions=True)}
    return Parameters(
        **fields,
        windows=read_windows(metadata, NAME, geometry.n_layers, period=2),
        experts=replace(experts, activation=Activation.CLAMPED_SWISH, alpha=SWISH_ALPHA, limit=SWISH_LIMIT),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "post_attention_norm")
        tensors += attention_tensors(p, layer, bias=Bias.REQUIRED, output_bias=Bias.REQUIRED)
        tensors.append(vector(f"blk.{layer}.attn_sinks.weight", p.n_heads))
        tensors += expert_tensors(p, p.experts, layer, bias=Bias.REQUIRED)
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
        sinks = decoder.weights.vector(f"{block}attn_sinks.weight")
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads, window=p.windows[layer], sinks=sinks)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"))
        h = decoder.norm(x, f"{block}post_attention_norm")
        x = builder.add(x, mixture(decoder, h, block, p.experts))
    return decoder.finish(x)
