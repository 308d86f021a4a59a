"""Steps that only encoders have, in float64; see decoder.py."""

from __future__ import annotations

from math import erf
from typing import TYPE_CHECKING

import numpy as np

from reference import experts
from reference.decoder import heads, linear

if TYPE_CHECKING:
    from reference.decoder import Array
    from reference.weights import Weights


def layer_norm(weights: Weights, name: str, x: Array, epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis (arXiv:1607.06450)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(variance + epsilon) * weights[name + ".weight"] + weights.optional(name + ".bias")
    return result


def gelu(x: Array) -> Array:
    """x times the normal distribution up to x (arXiv:1606.08415)."""
    return 0.5 * x * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))


def queries_keys_values(weights: Weights, block: str, x: Array, head_dim: int) -> list[Array]:
    """Of all heads, from one tensor or from three: (n_tokens, heads, head_dim) each."""
    if weights.has(block + "attn_qkv.weight"):
        return [heads(part, head_dim) for part in np.split(linear(weights, block + "attn_qkv", x), 3, axis=-1)]
    return [heads(linear(weights, f"{block}attn_{each}", x), head_dim) for each in "qkv"]


def attend(q: Array, k: Array, v: Array, *, scale: float, reach: int | None = None) -> Array:
    """Attention both ways, to keys at most `reach` away: (n_tokens, heads * head_dim)."""
    n_tokens, n_heads, _ = q.shape
    group = n_heads // k.shape[1]
    distance = np.abs(np.arange(n_tokens)[:, None] - np.arange(n_tokens)[None, :])
    out = np.empty_like(q)
    for head in range(n_heads):
        scores = scale * (q[:, head] @ k[:, head // group].T)
        if reach is not None:
            scores[distance > reach] = -np.inf
        out[:, head] = experts.softmax(scores) @ v[:, head // group]
    return out.reshape(n_tokens, -1)


def pool(weights: Weights, x: Array) -> Array:
    """One row of x (n_tokens, d_model): the mean, the first or the last, as the file says."""
    kind = int(weights.key("pooling_type"))
    row: Array = {1: x.mean(axis=0), 2: x[0], 3: x[-1]}[kind]
    return row
