"""granitemoe in float64: granite with experts whose weights sum up to 1, and a shared one where a file has it."""

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
    residual, scale = float(weights.key("residual_scale")), float(weights.key("attention.scale"))
    angle = decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot))
    x = weights.rows("token_embd.weight", list(token_ids)) * float(weights.key("embedding_scale"))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q, k = rotate(q, angle, halves=False), rotate(k, angle, halves=False)
        a = decoder.attend(q, k, v, scale=scale)
        x = x + residual * linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        total = experts.mixture(weights, block, h, weigh=experts.summing_to_one)
        if weights.has(block + "ffn_gate_shexp.weight"):
            total = total + experts.shared_expert(weights, block, h)
        x = x + residual * total
    x = rms_norm(x, weights["output_norm.weight"], s.norm_epsilon)
    return decoder.logits(weights, x) / float(weights.key("logit_scale"))
