"""olmoe in float64 (arXiv:2409.02060): norms over all queries and all keys, experts weighed by their shares of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder, experts
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    angle = decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot))
    x = weights.rows("token_embd.weight", list(token_ids))

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, weights[name + ".weight"], s.norm_epsilon)

    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = norm(x, block + "attn_norm")
        q, k, v = (linear(weights, f"{block}attn_{each}", h) for each in "qkv")
        q, k = heads(norm(q, block + "attn_q_norm"), s.head_dim), heads(norm(k, block + "attn_k_norm"), s.head_dim)
        q, k = rotate(q, angle, halves=True), rotate(k, angle, halves=True)
        a = decoder.attend(q, k, heads(v, s.head_dim), scale=s.head_dim**-0.5)
        x = x + linear(weights, block + "attn_output", a)
        x = x + experts.mixture(weights, block, norm(x, block + "ffn_norm"))
    return decoder.logits(weights, norm(x, "output_norm"))
