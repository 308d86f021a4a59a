"""gemma3: the text decoders of Gemma 3 (https://arxiv.org/abs/2503.19786).

Different from gemma2: an RMS norm on each query and key head instead of capped scores; of six layers five see a sliding
window, and those have a RoPE base of their own (10,000) and are never stretched, while the sixth has the file's
base and scaling. Different from llama: see gemma2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.graph.ops import Activation
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import (
    attention_tensors,
    feed_forward_tensors,
    head_norm_tensors,
    norm_tensors,
    outer_tensors,
)
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import non_negative_float, positive_float
from emel.model.rope import LOCAL_FREQUENCIES, Rope, Scaling, frequency_vector, plain_vector
from emel.model.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "gemma3"
PAIRING = Pairing.HALVES
NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
# As in gemma2. https://github.com/google/gemma_pytorch/blob/014acb7ac4563a5f77c76d7ff98f31b568c16508/gemma/config.py
N_LAYERS_27B = 62


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file; `rope` is that of the layers that see everything."""

    local_rope: Rope
    windows: tuple[int, ...]  # keys a token of each layer sees; 0: all
    score_scale: float
    logit_cap: float  # 0: none


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME, rope_base=1e6)
    divisor = geometry.d_model // geometry.n_heads if geometry.n_layers == N_LAYERS_27B else geometry.head_dim
    local_base = positive_float(metadata, f"{NAME}.rope.freq_base_swa", 10000.0)
    return Parameters(
        **geometry.as_fields(),
        local_rope=replace(geometry.rope, base=local_base, scaling=Scaling.NONE, factor=1.0, attention_factor=1.0),
        windows=read_windows(metadata, NAME, geometry.n_layers, period=6),
        score_scale=divisor**-0.5,
        logit_cap=non_negative_float(metadata, f"{NAME}.final_logit_softcapping", 0.0),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
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
    decoder = Decoder(p, tensors)
    builder = decoder.builder
    full, local = decoder.rope_tables(p.windows, p.rope, p.local_rope)
    x = decoder.embed(scale=p.d_model**0.5)
    for layer, block in decoder.layers():
        heads, window = p.heads_of(layer), p.windows[layer]
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = decoder.norm_rope_store(q, k, v, local if window else full, block, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.score_scale, heads=heads, window=window)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.norm(decoder.linear(a, f"{block}attn_output"), f"{block}post_attention_norm"))
        h = decoder.feed_forward(decoder.norm(x, f"{block}ffn_norm"), block, Activation.GELU_TANH)
        x = builder.add(x, decoder.norm(h, f"{block}post_ffw_norm"))
    return decoder.finish(x, cap=p.logit_cap)
