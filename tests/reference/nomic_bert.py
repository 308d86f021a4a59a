"""nomic-bert in float64 (arXiv:2402.01613): the embedding of one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder, encoder
from reference.decoder import linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def embed(weights: Weights, token_ids: Sequence[int]) -> Array:
    """(d_model,)."""
    epsilon = float(weights.key("attention.layer_norm_epsilon"))
    head_dim = int(weights.key("embedding_length")) // int(weights.key("attention.head_count"))
    angle = decoder.angles(len(token_ids), decoder.frequencies(float(weights.key("rope.freq_base")), head_dim))
    x = weights.rows("token_embd.weight", list(token_ids)) + weights["token_types.weight"][0]
    x = encoder.layer_norm(weights, "token_embd_norm", x, epsilon)
    for layer in range(int(weights.key("block_count"))):
        block = f"blk.{layer}."
        q, k, v = encoder.queries_keys_values(weights, block, x, head_dim)
        q, k = decoder.rotate(q, angle, halves=True), decoder.rotate(k, angle, halves=True)
        a = encoder.attend(q, k, v, scale=head_dim**-0.5)
        x = encoder.layer_norm(
            weights, block + "attn_output_norm", x + linear(weights, block + "attn_output", a), epsilon
        )
        gated = decoder.silu(linear(weights, block + "ffn_gate", x)) * linear(weights, block + "ffn_up", x)
        x = encoder.layer_norm(
            weights, block + "layer_output_norm", x + linear(weights, block + "ffn_down", gated), epsilon
        )
    return encoder.pool(weights, x)
