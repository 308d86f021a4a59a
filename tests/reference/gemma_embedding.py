"""gemma-embedding in float64 (arXiv:2509.20354): the embedding of one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder, encoder
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def embed(weights: Weights, token_ids: Sequence[int]) -> Array:
    """(d_model,)."""
    s = decoder.read_sizes(weights)
    full, local = (
        decoder.angles(len(token_ids), decoder.frequencies(base, s.n_rot)) for base in (s.rope_base, 10000.0)
    )
    reach = int(weights.key("attention.sliding_window")) // 2
    x = weights.rows("token_embd.weight", list(token_ids)) * s.d_model**0.5

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, weights[name + ".weight"], s.norm_epsilon)

    for layer in range(s.n_layers):
        block, slides = f"blk.{layer}.", layer % 6 < 5
        angle = local if slides else full
        h = norm(x, block + "attn_norm")
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q = rotate(norm(q, block + "attn_q_norm"), angle, halves=True)
        k = rotate(norm(k, block + "attn_k_norm"), angle, halves=True)
        a = encoder.attend(q, k, v, scale=s.head_dim**-0.5, reach=reach if slides else None)
        x = x + norm(linear(weights, block + "attn_output", a), block + "post_attention_norm")
        h = norm(x, block + "ffn_norm")
        gated = decoder.gelu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + norm(linear(weights, block + "ffn_down", gated), block + "post_ffw_norm")
    pooled = encoder.pool(weights, norm(x, "output_norm"))
    return linear(weights, "dense_3", linear(weights, "dense_2", pooled))
