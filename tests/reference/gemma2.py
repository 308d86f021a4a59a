"""gemma2 in float64 (arXiv:2408.00118): scaled embeddings, norms before and behind each block, GELU gates, capped
scores and logits, a sliding window in every other layer from the first on."""

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
    window, cap = int(weights.key("attention.sliding_window")), float(weights.key("attn_logit_softcapping"))
    angle = decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot))
    x = weights.rows("token_embd.weight", list(token_ids)) * np.sqrt(s.d_model)

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, weights[name + ".weight"], s.norm_epsilon)

    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = norm(x, block + "attn_norm")
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q, k = rotate(q, angle, halves=True), rotate(k, angle, halves=True)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5, window=0 if layer % 2 else window, cap=cap)
        x = x + norm(linear(weights, block + "attn_output", a), block + "post_attention_norm")
        h = norm(x, block + "ffn_norm")
        gated = decoder.gelu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + norm(linear(weights, block + "ffn_down", gated), block + "post_ffw_norm")
    cap = float(weights.key("final_logit_softcapping"))
    return cap * np.tanh(decoder.logits(weights, norm(x, "output_norm")) / cap)
