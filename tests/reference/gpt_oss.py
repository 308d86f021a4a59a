"""gpt-oss in float64 (arXiv:2508.10925, https://github.com/openai/gpt-oss/blob/main/gpt_oss/torch/model.py)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reference import decoder, experts
from reference.decoder import heads, linear, rms_norm, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reference.decoder import Array, Sizes
    from reference.weights import Weights


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    s = decoder.read_sizes(weights)
    angle = decoder.angles(len(token_ids), stretched_frequencies(weights, s))
    turn = partial(rotate, halves=True, magnitude=decoder.yarn_magnitude(float(weights.key("rope.scaling.factor"))))
    window = int(weights.key("attention.sliding_window"))
    x = weights.rows("token_embd.weight", list(token_ids))
    for layer in range(s.n_layers):
        block = f"blk.{layer}."
        h = rms_norm(x, weights[block + "attn_norm.weight"], s.norm_epsilon)
        q, k, v = (heads(linear(weights, f"{block}attn_{each}", h), s.head_dim) for each in "qkv")
        q, k = turn(q, angle), turn(k, angle)
        sinks = weights[block + "attn_sinks.weight"]
        a = attend_with_sinks(q, k, v, sinks, scale=s.head_dim**-0.5, window=0 if layer % 2 else window)
        x = x + linear(weights, block + "attn_output", a)
        h = rms_norm(x, weights[block + "post_attention_norm.weight"], s.norm_epsilon)
        x = x + experts.mixture(
            weights, block, h, score=lambda scores: scores, weigh=experts.softmax, activation=clamped_swiglu
        )
    return decoder.logits(weights, rms_norm(x, weights["output_norm.weight"], s.norm_epsilon))


def stretched_frequencies(weights: Weights, s: Sizes) -> Array:
    """YaRN whose ramp begins and ends at fractions of a pair: 32 turns of the original context, and 1."""
    factor = float(weights.key("rope.scaling.factor"))
    original = int(weights.key("rope.scaling.original_context_length"))
    n_pairs = s.n_rot // 2
    low, high = (n_pairs * np.log(original / (n * 2 * np.pi)) / np.log(s.rope_base) for n in (32.0, 1.0))
    low = max(low, 0.0)
    ramp = np.clip((np.arange(n_pairs) - low) / (high - low), 0.0, 1.0)
    plain = decoder.frequencies(s.rope_base, s.n_rot)
    stretched: Array = plain * (1.0 - ramp) + plain / factor * ramp
    return stretched


def attend_with_sinks(q: Array, k: Array, v: Array, sinks: Array, *, scale: float, window: int) -> Array:
    """Causal attention with a score of each head that has no value: (n_tokens, heads * head_dim)."""
    n_tokens, n_heads, _ = q.shape
    group = n_heads // k.shape[1]
    out = np.zeros_like(q)
    for head in range(n_heads):
        for token in range(n_tokens):
            first = max(0, token - window + 1) if window else 0
            scores = scale * (k[first : token + 1, head // group] @ q[token, head])
            shares = experts.softmax(np.append(scores, sinks[head]))[:-1]
            out[token, head] = shares @ v[first : token + 1, head // group]
    return out.reshape(n_tokens, -1)


def clamped_swiglu(gate: Array, up: Array) -> Array:
    """A swish of the gate, at most 7, times up within 7 of zero, plus 1."""
    gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return gate * experts.sigmoid(1.702 * gate) * (up + 1.0)
