"""phi3 in float64 (arXiv:2404.14219): llama with q, k, v in one tensor and gate, up in another, RoPE over halves, and
LongRoPE's divisors (arXiv:2402.13753): the long ones where `n_ctx` exceeds the original context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reference import decoder
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int], n_ctx: int | None = None) -> Array:
    """Logits (n_tokens, n_vocab) of every position, in a session of `n_ctx` tokens (by default all the model has)."""
    s = decoder.read_sizes(weights)
    magnitude = float(weights.key("rope.scaling.attn_factor", 1.0))
    window = int(weights.key("attention.sliding_window", 0))
    angle = decoder.angles(len(token_ids), divided_frequencies(weights, s, n_ctx))
    q_width, kv_width = s.n_heads * s.head_dim, s.n_kv_heads[0] * s.head_dim
    x = weights.rows("token_embd.weight", list(token_ids))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        joined = np.split(linear(weights, block + "attn_qkv", h), [q_width, q_width + kv_width], axis=-1)
        q, k, v = (heads(part, s.head_dim) for part in joined)
        q = rotate(q, angle, halves=True, magnitude=magnitude)
        k = rotate(k, angle, halves=True, magnitude=magnitude)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5, window=window)
        x = x + linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        gate, up = np.split(linear(weights, block + "ffn_up", h), 2, axis=-1)
        x = x + linear(weights, block + "ffn_down", decoder.silu(gate) * up)
    return decoder.logits(weights, rms_norm(x, weights["output_norm.weight"], s.norm_epsilon))


def divided_frequencies(weights: Weights, s: decoder.Sizes, n_ctx: int | None) -> Array:
    """(n_rot / 2,): frequencies divided by the long or the short factors."""
    trained = int(weights.key("context_length"))
    original = int(weights.key("rope.scaling.original_context_length", trained))
    name = f"rope_factors_{'long' if (n_ctx or trained) > original else 'short'}.weight"
    plain = decoder.frequencies(s.rope_base, s.n_rot)
    return plain / weights[name] if weights.has(name) else plain
