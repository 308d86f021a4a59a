"""Steps of decoders in float64, one plain function each: what every engine result is held against.

Whole matrices, no cache, no batching, no reuse. An architecture's reference puts them together in the order of its
paper; this module knows no architecture. Sources: RMS norm (arXiv:1910.07467), RoPE (arXiv:2104.09864), YaRN
(arXiv:2309.00071), grouped queries (arXiv:2305.13245), gated feed-forward (arXiv:2002.05202), GELU (arXiv:1606.08415).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reference.weights import Weights

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers every decoder's file has."""

    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: list[int]  # of each layer
    head_dim: int
    n_rot: int
    rope_base: float
    norm_epsilon: float


def read_sizes(weights: Weights, *, rope_base: float = 10000.0) -> Sizes:
    """From the metadata."""
    n_layers, d_model = int(weights.key("block_count")), int(weights.key("embedding_length"))
    n_heads = int(weights.key("attention.head_count"))
    kv_heads = weights.key("attention.head_count_kv", n_heads)
    head_dim = int(weights.key("attention.key_length", d_model // n_heads))
    return Sizes(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=[int(n) for n in kv_heads] if isinstance(kv_heads, list) else [int(kv_heads)] * n_layers,
        head_dim=head_dim,
        n_rot=int(weights.key("rope.dimension_count", head_dim)),
        rope_base=float(weights.key("rope.freq_base", rope_base)),
        norm_epsilon=float(weights.key("attention.layer_norm_rms_epsilon")),
    )


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    mean_square: Array = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + epsilon) * weight


def linear(weights: Weights, name: str, x: Array) -> Array:
    """weight . x plus the bias, if the file has one: (n_tokens, cols) -> (n_tokens, rows)."""
    return weights.product(name + ".weight", x) + weights.optional(name + ".bias")


def frequencies(base: float, n_rot: int) -> Array:
    """Radians a position of each pair of dimensions, (n_rot / 2,): base^(-2i / n_rot)."""
    return base ** (-np.arange(0, n_rot, 2, dtype=np.float64) / n_rot)


def yarn_frequencies(base: float, n_rot: int, factor: float, original_context: int) -> Array:
    """YaRN with 32 and 1 turns as the ends of its ramp, which are rounded outwards to whole dimensions."""

    def dimension(n_turns: float) -> float:
        return n_rot * np.log(original_context / (n_turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(np.floor(dimension(32.0)), 0.0), min(np.ceil(dimension(1.0)), n_rot - 1.0)
    ramp = np.clip((np.arange(n_rot // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    plain = frequencies(base, n_rot)
    return plain * (1.0 - ramp) + plain / factor * ramp


def yarn_magnitude(factor: float) -> float:
    """What YaRN multiplies cosines and sines by."""
    return 0.1 * float(np.log(factor)) + 1.0


def angles(n_tokens: int, per_position: Array) -> Array:
    """The angle of each position and pair, (n_tokens, n_rot / 2)."""
    return np.outer(np.arange(n_tokens, dtype=np.float64), per_position)


def rotate(x: Array, angle: Array, *, halves: bool, magnitude: float = 1.0) -> Array:
    """Turns pairs of the first n_rot values of each head of x (n_tokens, heads, head_dim).

    Pairs are (i, i + n_rot / 2) with `halves`, else (2i, 2i + 1).
    """
    n_pairs = angle.shape[-1]
    cos, sin = magnitude * np.cos(angle)[:, None, :], magnitude * np.sin(angle)[:, None, :]
    first = slice(0, n_pairs) if halves else slice(0, 2 * n_pairs, 2)
    second = slice(n_pairs, 2 * n_pairs) if halves else slice(1, 2 * n_pairs, 2)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def heads(x: Array, head_dim: int) -> Array:
    """(n_tokens, heads * head_dim) -> (n_tokens, heads, head_dim)."""
    return x.reshape(len(x), -1, head_dim)


def attend(q: Array, k: Array, v: Array, *, scale: float, window: int = 0, cap: float = 0.0) -> Array:
    """Causal attention of heads (n_tokens, heads, head_dim), key heads shared: (n_tokens, heads * head_dim).

    A token sees `window` keys, its own included (0: all). `cap`: scores become cap * tanh(score / cap).
    """
    n_tokens, n_heads, _ = q.shape
    group = n_heads // k.shape[1]
    distance = np.arange(n_tokens)[:, None] - np.arange(n_tokens)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    out = np.empty_like(q)
    for head in range(n_heads):
        scores = scale * (q[:, head] @ k[:, head // group].T)  # (n_tokens, n_tokens)
        if cap:
            scores = cap * np.tanh(scores / cap)
        scores[hidden] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = shares / shares.sum(axis=-1, keepdims=True) @ v[:, head // group]
    return out.reshape(n_tokens, -1)


def silu(x: Array) -> Array:
    """x / (1 + exp(-x))."""
    return x / (1.0 + np.exp(-x))


def gelu(x: Array) -> Array:
    """GELU in its tanh form."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def logits(weights: Weights, x: Array) -> Array:
    """x times the output matrix, which is the embedding unless the file has its own."""
    return weights.product("output.weight" if weights.has("output.weight") else "token_embd.weight", x)
