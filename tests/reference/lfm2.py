"""lfm2 in float64 (arXiv:2511.23404): gated short convolutions between layers of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reference import decoder
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array, Sizes
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    angle = decoder.angles(len(token_ids), decoder.frequencies(s.rope_base, s.n_rot))
    x = weights.rows("token_embd.weight", list(token_ids))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        x = mix_tokens(weights, s, layer, x, angle)
        h = rms_norm(x, weights[block + "ffn_norm.weight"], s.norm_epsilon)
        gated = decoder.silu(linear(weights, block + "ffn_gate", h)) * linear(weights, block + "ffn_up", h)
        x = x + linear(weights, block + "ffn_down", gated)
    return decoder.logits(weights, rms_norm(x, weights["token_embd_norm.weight"], s.norm_epsilon))


def mix_tokens(weights: Weights, s: Sizes, layer: int, x: Array, angle: Array) -> Array:
    """The stream behind a layer's attention or convolution."""
    block = f"blk.{layer}."
    h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
    if s.n_kv_heads[layer] == 0:
        return x + linear(weights, block + "shortconv.out_proj", convolve(weights, block, h))
    q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
    q = rotate(rms_norm(q, weights[block + "attn_q_norm.weight"], s.norm_epsilon), angle, halves=True)
    k = rotate(rms_norm(k, weights[block + "attn_k_norm.weight"], s.norm_epsilon), angle, halves=True)
    a = decoder.attend(q, k, v, scale=s.head_dim**-0.5)
    return x + linear(weights, block + "attn_output", a)


def convolve(weights: Weights, block: str, h: Array) -> Array:
    """C * (the causal convolution of B * X, channel by channel)."""
    b, c, inner = np.split(linear(weights, block + "shortconv.in_proj", h), 3, axis=-1)
    kernel = weights[block + "shortconv.conv.weight"]  # (d_model, n_taps), the oldest first
    n_taps = kernel.shape[1]
    past = np.concatenate([np.zeros((n_taps - 1, h.shape[1])), b * inner])
    sums = sum(kernel[:, tap] * past[tap : tap + len(h)] for tap in range(n_taps))
    convolved: Array = c * sums
    return convolved
