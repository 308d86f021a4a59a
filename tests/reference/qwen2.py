"""qwen2 in float64 (arXiv:2407.10671): llama with biases on q, k, v and RoPE over halves; YaRN where a file says so."""

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
    angle, magnitude = stretched_angles(weights, s, len(token_ids))
    x = weights.rows("token_embd.weight", list(token_ids))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q = rotate(q, angle, halves=True, magnitude=magnitude)
        k = rotate(k, angle, halves=True, magnitude=magnitude)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5)
        x = x + linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        gated = decoder.silu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + linear(weights, block + "ffn_down", gated)
    return decoder.logits(weights, rms_norm(x, weights["output_norm.weight"], s.norm_epsilon))


def stretched_angles(weights: Weights, s: decoder.Sizes, n_tokens: int) -> tuple[Array, float]:
    """Angles (n_tokens, n_rot / 2) and what their cosines and sines are multiplied by."""
    if weights.key("rope.scaling.type", "none") != "yarn":
        return decoder.angles(n_tokens, decoder.frequencies(s.rope_base, s.n_rot)), 1.0
    factor = float(weights.key("rope.scaling.factor"))
    original = int(weights.key("rope.scaling.original_context_length"))
    per_position = decoder.yarn_frequencies(s.rope_base, s.n_rot, factor, original)
    return decoder.angles(n_tokens, per_position), decoder.yarn_magnitude(factor)
