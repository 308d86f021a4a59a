"""A slow, obvious forward pass of the llama architecture in float64: what every engine result is held against.

One function per step of the model, whole matrices, no cache, no batching, no reuse: token ids go in, the logits of
every position come out. Llama 2 (arXiv:2307.09288) with grouped-query attention (arXiv:2305.13245), RMS norm
(arXiv:1910.07467), SwiGLU (arXiv:2002.05202) and RoPE (arXiv:2104.09864). GGUF files of llama models have the rows of
`attn_q` and `attn_k` ordered so that RoPE turns *adjacent* pairs (2i, 2i+1); a file may divide each pair's frequency
by `rope_freqs.weight[i]` (Llama 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reference.weights import Hyperparameters, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GreedyStep:
    """What the reference would say at one position: its token, and by how much its logit leads the second."""

    token: int
    margin: float


def reference_logits(path: str | PathLike[str], token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position of a llama GGUF."""
    return forward(Weights(path), token_ids)


def forward(weights: Weights, token_ids: Sequence[int]) -> Array:
    """Logits (n_tokens, n_vocab) of every position."""
    parameters = weights.hyperparameters
    x = weights.rows("token_embd.weight", list(token_ids))  # (n_tokens, d_model)
    angles = rope_angles(weights, len(token_ids))
    for layer in range(parameters.n_layers):
        block = f"blk.{layer}."
        x = x + attention(weights, block, rms_norm(x, weights[block + "attn_norm.weight"], parameters), angles)
        x = x + feed_forward(weights, block, rms_norm(x, weights[block + "ffn_norm.weight"], parameters))
    x = rms_norm(x, weights["output_norm.weight"], parameters)
    tied = not weights.has("output.weight")
    return weights.product("token_embd.weight" if tied else "output.weight", x)


def rms_norm(x: Array, weight: Array, parameters: Hyperparameters) -> Array:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    mean_square: Array = np.mean(x * x, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + parameters.norm_epsilon) * weight


def linear(weights: Weights, name: str, x: Array) -> Array:
    """weight . x plus the bias, if the file has one: (n_tokens, cols) -> (n_tokens, rows)."""
    return weights.product(name + ".weight", x) + weights.optional(name + ".bias")


def rope_angles(weights: Weights, n_tokens: int) -> Array:
    """Angle of each position and pair, (n_tokens, n_rot / 2): position * base^(-2i / n_rot) / factor[i] / scale."""
    parameters = weights.hyperparameters
    frequencies = parameters.rope_base ** (-np.arange(0, parameters.n_rot, 2, dtype=np.float64) / parameters.n_rot)
    if weights.has("rope_freqs.weight"):
        frequencies = frequencies / weights["rope_freqs.weight"]
    return np.outer(np.arange(n_tokens, dtype=np.float64), frequencies / parameters.rope_scale)


def rotate(x: Array, angles: Array) -> Array:
    """Turns the pairs (2i, 2i+1) of the first n_rot values of each head of x (n_tokens, heads, head_dim)."""
    n_rot = 2 * angles.shape[-1]
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    even, odd = x[..., 0:n_rot:2], x[..., 1:n_rot:2]
    out = x.copy()
    out[..., 0:n_rot:2] = even * cos - odd * sin
    out[..., 1:n_rot:2] = even * sin + odd * cos
    return out


def attention(weights: Weights, block: str, x: Array, angles: Array) -> Array:
    """Causal grouped-query attention of normed x (n_tokens, d_model)."""
    parameters = weights.hyperparameters
    n_tokens, group = len(x), parameters.n_heads // parameters.n_kv_heads
    q = linear(weights, block + "attn_q", x).reshape(n_tokens, parameters.n_heads, parameters.head_dim)
    k = linear(weights, block + "attn_k", x).reshape(n_tokens, parameters.n_kv_heads, parameters.head_dim)
    v = linear(weights, block + "attn_v", x).reshape(n_tokens, parameters.n_kv_heads, parameters.head_dim)
    q, k = rotate(q, angles), rotate(k, angles)
    future = np.triu(np.ones((n_tokens, n_tokens), dtype=bool), k=1)
    out = np.empty_like(q)
    for head in range(parameters.n_heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(parameters.head_dim)  # (n_tokens, n_tokens)
        scores[future] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        out[:, head] = shares @ v[:, head // group]
    return linear(weights, block + "attn_output", out.reshape(n_tokens, -1))


def feed_forward(weights: Weights, block: str, x: Array) -> Array:
    """SwiGLU: down(silu(gate(x)) * up(x)) of normed x (n_tokens, d_model)."""
    gate = linear(weights, block + "ffn_gate", x)
    silu = gate / (1.0 + np.exp(-gate))
    return linear(weights, block + "ffn_down", silu * linear(weights, block + "ffn_up", x))


def greedy_steps(logits: Array) -> list[GreedyStep]:
    """The reference's token and margin at each row of logits (n, n_vocab); ties go to the lowest id."""
    tokens = logits.argmax(axis=-1)
    top_two = np.partition(logits, -2, axis=-1)[:, -2:]
    return [GreedyStep(int(token), float(top - second)) for token, (second, top) in zip(tokens, top_two, strict=True)]


def judge_continuation(
    weights: Weights, prompt_ids: Sequence[int], continuation_ids: Sequence[int]
) -> list[GreedyStep]:
    """What the reference would say at each place of a continuation, given the prompt and the continuation before it.

    As long as the continuation is the reference's own this is the reference's greedy continuation, in one pass.
    """
    if not prompt_ids or not continuation_ids:
        raise ValueError("both the prompt and the continuation need at least one token")
    logits = forward(weights, [*prompt_ids, *continuation_ids[:-1]])
    return greedy_steps(logits[len(prompt_ids) - 1 :])


def greedy_continuation(weights: Weights, prompt_ids: Sequence[int], n_tokens: int) -> list[GreedyStep]:
    """The reference's own greedy continuation of n_tokens tokens; end tokens do not stop it."""
    steps: list[GreedyStep] = []
    for _ in range(n_tokens):
        ids = [*prompt_ids, *(step.token for step in steps)]
        steps.extend(greedy_steps(forward(weights, ids)[-1:]))
    return steps
