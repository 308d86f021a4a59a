"""qwen2moe in float64 (arXiv:2407.10671): qwen2 with experts weighed by their shares of all, and a gated shared one."""

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
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q, k = rotate(q, angle, halves=True), rotate(k, angle, halves=True)
        a = decoder.attend(q, k, v, scale=s.head_dim**-0.5)
        x = x + linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        gate = experts.sigmoid(h @ weights[block + "ffn_gate_inp_shexp.weight"].reshape(-1, 1))
        x = x + experts.mixture(weights, block, h) + gate * experts.shared_expert(weights, block, h)
    return decoder.logits(weights, rms_norm(x, weights["output_norm.weight"], s.norm_epsilon))
