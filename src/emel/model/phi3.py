"""phi3: Phi-3, Phi-3.5 and Phi-4-mini (https://arxiv.org/abs/2404.14219, https://arxiv.org/abs/2503.01743).

Different from llama: queries, keys and values come from one tensor (attn_qkv), gate and up from another (ffn_up, the
gate's rows first), which are taken apart by rows; RoPE pairs the halves of a head, or of a part of it (Phi-4-mini);
contexts are stretched by LongRoPE, whose divisors are tensors: a short set up to the original context, a long one for
sessions of more. Phi-3-mini-4k sees a sliding window, in every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.attention_ops import Pairing
from emel.lazy_dataclasses import dataclass
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import attention_tensors, feed_forward_tensors, norm_tensors, outer_tensors
from emel.model.geometry import Geometry, read_geometry
from emel.model.parameters import non_negative_int
from emel.model.rope import frequency_vector
from emel.model.tensors import split_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "phi3"
PAIRING = Pairing.HALVES


@dataclass(frozen=True, slots=True)
class Parameters(Geometry):
    """The hyperparameters of one file."""

    window: int  # keys a token sees, its own included; 0: all


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    return Parameters(
        **read_geometry(metadata, tensors, NAME).as_fields(),
        window=non_negative_int(metadata, f"{NAME}.attention.sliding_window", 0),
    )


def split_tensors(p: Parameters, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors with each joined one as the matrices it holds, by llama's names; ModelError for a wrong shape."""
    seen = dict(tensors)
    for layer in range(p.n_layers):
        heads, block = p.heads_of(layer), f"blk.{layer}."
        joined = {
            f"{block}attn_qkv.weight": {"attn_q": heads.q_width, "attn_k": heads.kv_width, "attn_v": heads.kv_width},
            f"{block}ffn_up.weight": {"ffn_gate": p.d_ff[layer], "ffn_up": p.d_ff[layer]},
        }
        for name, parts in joined.items():
            rows = {f"{block}{part}.weight": n for part, n in parts.items()}
            if name in tensors and next(iter(rows)) not in tensors:
                seen |= {part.name: part for part in split_rows(seen.pop(name), rows)}
    return seen


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape, the joined ones taken apart."""
    tensors = outer_tensors(p)
    for layer in range(p.n_layers):
        tensors += norm_tensors(p, layer, "attn_norm", "ffn_norm")
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
    x = decoder.embed()
    for layer, block in decoder.layers():
        heads = p.heads_of(layer)
        q, k, v = decoder.qkv(decoder.norm(x, f"{block}attn_norm"), block)
        q = builder.rope_store(q, k, v, table, pairing=PAIRING, heads=heads)
        a = builder.attention(q, scale=p.head_dim**-0.5, heads=heads, window=p.window)
        x, a = decoder.wanted_rows(layer, x, a)
        x = builder.add(x, decoder.linear(a, f"{block}attn_output"))
        h = decoder.norm(x, f"{block}ffn_norm")
        x = builder.add(x, decoder.feed_forward(h, block))
    return decoder.finish(x)
