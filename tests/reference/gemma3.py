"""gemma3 in float64 (arXiv:2503.19786): gemma2 without caps, with norms of heads; of six layers the first five see a
sliding window and have a RoPE base of 10,000, the sixth has the file's base and linear scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reference import decoder
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    n_tokens, window = len(token_ids), int(weights.key("attention.sliding_window"))
    stretch = float(weights.key("rope.scaling.factor", 1.0))
    local = decoder.angles(n_tokens, decoder.frequencies(10000.0, s.n_rot))
    full = decoder.angles(n_tokens, decoder.frequencies(s.rope_base, s.n_rot) / stretch)
    x = weights.rows("token_embd.weight", list(token_ids)) * np.sqrt(s.d_model)

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, weights[name + ".weight"], s.norm_epsilon)

    for layer in range(s.n_layers):
        block, is_full = f"blk.{layer}.", layer % 6 == 5
        angle = full if is_full else local
        h = norm(x, block + "attn_norm")
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q = rotate(norm(q, block + "attn_q_norm"), angle, halves=True)
        k = rotate(norm(k, block + "attn_k_norm"), angle, halves=True)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5, window=0 if is_full else window)
        x = x + norm(linear(weights, block + "attn_output", a), block + "post_attention_norm")
        h = norm(x, block + "ffn_norm")
        gated = decoder.gelu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + norm(linear(weights, block + "ffn_down", gated), block + "post_ffw_norm")
    return decoder.logits(weights, norm(x, "output_norm"))
