"""lfm2moe: the hybrids of LFM2 with mixtures of experts (https://arxiv.org/abs/2511.23404).

Different from lfm2: all feed-forwards but the first few are mixtures of experts, scored by sigmoids, chosen with a bias
for each expert added (https://arxiv.org/abs/2408.15664), with weights that sum up to 1 for each token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.graph.expert_ops import Gating
from emel.lazy_dataclasses import dataclass
from emel.model import lfm2
from emel.model.decoder import Decoder
from emel.model.decoder_tensors import feed_forward_tensors
from emel.model.experts import Experts, expert_tensors, mixture, read_experts
from emel.model.geometry import Geometry
from emel.model.parameters import non_negative_int
from emel.model.tensors import vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph
    from emel.kernel.packing import Vector
    from emel.model.tensors import ExpectedTensor

NAME = "lfm2moe"


@dataclass(frozen=True, slots=True)
class Parameters(lfm2.Parameters):
    """The hyperparameters of one file."""

    n_dense_layers: int  # the first ones, without experts
    experts: Experts


def read_parameters(metadata: Metadata, tensors: Mapping[str, TensorInfo]) -> Parameters:
    """From the metadata, and the vocabulary size from the embedding; MetadataError or ModelError name the key."""
    hybrid = lfm2.read_hybrid(metadata, tensors, NAME)
    experts = read_experts(
        metadata,
        NAME,
        d_model=hybrid.d_model,
        d_ff=hybrid.d_ff[0],
        is_normalized=True,
        gating=Gating.SIGMOID,
    )
    return Parameters(
        **Geometry.as_fields(hybrid),
        n_taps=hybrid.n_taps,
        n_dense_layers=non_negative_int(metadata, f"{NAME}.leading_dense_block_count", 0),
        experts=experts,
    )


def expected_tensors(p: Parameters) -> list[ExpectedTensor]:
    """Every tensor a file may have, with its shape."""
    tensors = lfm2.hybrid_tensors(p)
    for layer in range(p.n_layers):
        if layer < p.n_dense_layers:
            tensors += feed_forward_tensors(p, layer)
        else:
            tensors += expert_tensors(p, p.experts, layer)
            tensors.append(vector(f"blk.{layer}.exp_probs_b.bias", p.experts.n_experts))
    return tensors


def derived_vectors(p: Parameters, file: GgufFile, n_ctx: int) -> list[Vector]:
    """What is computed at load: as lfm2's."""
    return lfm2.derived_vectors(p, file, n_ctx)


def build(p: Parameters, tensors: Mapping[str, TensorInfo]) -> Graph:
    """The graph."""
    decoder = Decoder(p, tensors)
    builder = decoder.builder
    table = decoder.rope_table(p.rope)
    x = decoder.embed()
    for layer, block in decoder.layers():
        x = lfm2.mix_tokens(decoder, p, layer, x, table)
        h = decoder.norm(x, f"{block}ffn_norm")
        if layer < p.n_dense_layers:
            x = builder.add(x, decoder.feed_forward(h, block))
        else:
            x = builder.add(x, mixture(decoder, h, block, p.experts, choice_bias=f"{block}exp_probs_b.bias"))
    return decoder.finish(x, norm=lfm2.LAST_NORM)
