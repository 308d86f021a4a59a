"""olmo2: OLMo 2 (https://arxiv.org/abs/2501.00656) and OLMo 3, whose files have this architecture too.

Different from llama: norms stand behind attention and feed-forward, not before; queries and keys have an RMS norm over
all their heads together; RoPE pairs the halves of a head. OLMo 3: of four layers three see a sliding window, and YaRN
stretches only the fourth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import positive_float
from emel.model.rope import LOCAL_FREQUENCIES, Rope, Scaling, frequency_vector, plain_vector
from emel.model.tensors import vector
from emel.model.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "olmo2"
PAIRING = Pairing.HALVES


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file; `rope` is that of the layers that see everything."""

    local_rope: Rope
    windows: tuple[int, ...]  # keys a token of each layer sees; 0: all


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME)
    local_base = positive_float(metadata, f"{NAME}.rope.freq_base_swa", geometry.rope.base)
    return Parameters(
        **geometry.as_fields(),
        local_rope=replace(geometry.rope, base=local_base, scaling=Scaling.NONE, factor=1.0, attention_factor=1.0),
        windows=read_windows(metadata, NAME, geometry.n_layers, period=4),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        heads = p.heads_of(layer)
        tensors += attention_tensors(p, layer)
        tensors.append(vector(f"blk.{layer}.attn_q_norm.weight", heads.q_width))
        tensors.append(vector(f"blk.{layer}.attn_k_norm.weight", heads.kv_width))
        tensors += feed_forward_tensors(p, layer)
        tensors += norm_tensors(p, layer, "post_attention_norm", "post_ffw_norm")
    return tensors


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: the inverse frequencies of both kinds of layers, (n_rot / 2,) float64 each."""
    return [frequency_vector(p.rope, file, n_ctx), plain_vector(p.local_rope, LOCAL_FREQUENCIES)]


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    decoder = Decoder(p, tensors)
    builder = decoder.builder
    full, local = decoder.rope_tables(p.windows, p.rope, p.local_rope)
    x = decoder.embed()
    for layer, block in decoder.layers():
        heads, window = p.heads_of(layer), p.windows[layer]
        q, k, v = decoder.qkv(x, block)
        q, k = decoder.norm(q, f"{block}attn_q_norm"), decoder.norm(k, f"{block}attn_k_norm")
        q = builder.rope_store(q, k, v, local if window else full, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads, window=window)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.norm(decoder.linear(a, f"{block}attn_output"), f"{block}post_attention_norm"))
        x = builder.add(x, decoder.norm(decoder.feed_forward(x, block), f"{block}post_ffw_norm"))
    return decoder.finish(x)
