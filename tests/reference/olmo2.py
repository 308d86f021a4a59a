"""olmo2 in float64 (arXiv:2501.00656): norms behind the blocks and over all queries or keys of a token together, RoPE
over halves. OLMo 3: of four layers the first three see a sliding window, and only the fourth is stretched by YaRN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference import decoder
from reference.decoder import heads, linear, rms_norm, rotate
from reference.qwen2 import stretched_angles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    window = int(weights.key("attention.sliding_window", 0))
    local = (decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot)), 1.0)
    full = stretched_angles(weights, s, len(token_ids))
    x = weights.rows("token_embd.weight", list(token_ids))

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, weights[name + ".weight"], s.norm_epsilon)

    for layer in range(s.n_layers):
        block, slides = f"blk.{layer}.", window > 0 and layer % 4 < 3
        angle, magnitude = local if slides else full
        q, k, v = (linear(weights, f"{block}attn_{each}", x) for each in "qkv")
        q, k = heads(norm(q, block + "attn_q_norm"), s.head_dim), heads(norm(k, block + "attn_k_norm"), s.head_dim)
        q = rotate(q, angle, halves=True, magnitude=magnitude)
        k = rotate(k, angle, halves=True, magnitude=magnitude)
        v = heads(v, s.head_dim)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5, window=window if slides else 0)
        x = x + norm(linear(weights, block + "attn_output", a), block + "post_attention_norm")
        gated = decoder.silu(linear(weights, block + "ffn_gate", x)) * linear(weights, block + "ffn_up", x)
        x = x + norm(linear(weights, block + "ffn_down", gated), block + "post_ffw_norm")
    return decoder.logits(weights, norm(x, "output_norm"))
