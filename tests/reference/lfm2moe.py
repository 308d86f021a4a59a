"""lfm2moe in float64 (arXiv:2511.23404): lfm2 with experts, scored by sigmoids and chosen with a bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder, experts, lfm2
from reference.decoder import linear, rms_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    angle = decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot))
    x = weights.rows("token_embd.weight", list(token_ids))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        x = lfm2.mix_tokens(weights, s, layer, x, angle)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        if layer < int(weights.key("leading_dense_block_count")):
            gated = decoder.silu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
            x = x + linear(weights, block + "ffn_down", gated)
        else:
            x = x + experts.mixture(weights, block, h, score=experts.sigmoid, weigh=experts.summing_to_one)
    return decoder.logits(weights, rms_norm(x, weights["token_embd_norm.weight"], s.norm_epsilon))
