"""smollm3 in float64 (https://huggingface.co/blog/smollm3): llama, but every fourth layer has no positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder
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
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        if layer % 4 < 3:
            q, k = rotate(q, angle, halves=False), rotate(k, angle, halves=False)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5)
        x = x + linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        gated = decoder.silu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + linear(weights, block + "ffn_down", gated)
    return decoder.logits(weights, rms_norm(x, weights["output_norm.weight"], s.norm_epsilon))
