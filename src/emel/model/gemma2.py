"""gemma2: Gemma 2 (https://arxiv.org/abs/2408.00118).

Different from llama: embeddings are multiplied by sqrt(d_model); each block has a norm behind it too, before it is
added to the residual stream; attention scores and logits are soft-capped; every other layer, from the first on, sees a
sliding window; the feed-forward's gate is GELU (tanh form); RoPE pairs the halves of a head; the output matrix is the
embedding. GGUF stores the weights of norms with the 1 added that the paper adds when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.graph.ops import Activation
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import non_negative_float
from emel.model.rope import frequency_vector
from emel.model.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "gemma2"
PAIRING = Pairing.HALVES
NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
# Layers of the one model whose scores are divided by sqrt(d_model / n_heads), not by sqrt(head_dim); no key says so.
# https://github.com/google/gemma_pytorch/blob/014acb7ac4563a5f77c76d7ff98f31b568c16508/gemma/config.py#L173
N_LAYERS_27B = 46


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    windows: tuple[int, ...]  # keys a token of each layer sees; 0: all
    score_scale: float
    score_cap: float  # 0: none
    logit_cap: float


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    geometry = read_geometry(metadata, tensors, NAME)
    divisor = geometry.d_model // geometry.n_heads if geometry.n_layers == N_LAYERS_27B else geometry.head_dim
    return Parameters(
        **geometry.as_fields(),
        windows=read_windows(metadata, NAME, geometry.n_layers, period=2, default=4096),
        score_scale=divisor**-0.5,
        score_cap=non_negative_float(metadata, f"{NAME}.attn_logit_softcapping", 50.0),
        logit_cap=non_negative_float(metadata, f"{NAME}.final_logit_softcapping", 30.0),
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, *NORMS)
        tensors += attention_tensors(p, layer)
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
    x = decoder.embed(scale=p.d_model**0.5)
    for layer, block in decoder.layers():
        heads = p.heads_of(layer)
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = builder.rope_store(q, k, v, table, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.score_scale, heads=heads, window=p.windows[layer], cap=p.score_cap)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.norm(decoder.linear(a, f"{block}attn_output"), f"{block}post_attention_norm"))
        h = decoder.feed_forward(decoder.norm(x, f"{block}ffn_norm"), block, Activation.GELU_TANH)
        x = builder.add(x, decoder.norm(h, f"{block}post_ffw_norm"))
    return decoder.finish(x, cap=p.logit_cap)
