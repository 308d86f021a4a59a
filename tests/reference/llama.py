"""A slow, obvious forward pass of the llama architecture in float64.

Whole matrices, no cache, no batching, no reuse: token ids go in, the logits of every position come out. Llama 2
(arXiv:2307.09288). GGUF files of llama models have the rows of `attn_q` and `attn_k` ordered so that RoPE turns
*adjacent* pairs; a file may divide each pair's frequency by `rope_freqs.weight[i]` (Llama 3), or all by one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reference import decoder, experts
from reference.decoder import heads, linear, rotate
from reference.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from reference.decoder import Array


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
    if weights.architecture != "llama":
        raise ValueError(f"this reference computes llama, the file holds {weights.architecture}")
    sizes = decoder.read_sizes(weights)
    epsilon = sizes.norm_epsilon
    x = weights.rows("token_embd.weight", list(token_ids))  # (n_tokens, d_model)
    angle = rope_angles(weights, len(token_ids))
    for layer in range(sizes.n_layers):
        block = f"blk.{layer}."
        x = x + attention(weights, block, decoder.rms_norm(x, weights[block + "attn_norm.weight"], epsilon), angle)
        x = x + feed_forward(weights, block, decoder.rms_norm(x, weights[block + "ffn_norm.weight"], epsilon))
    return decoder.logits(weights, decoder.rms_norm(x, weights["output_norm.weight"], epsilon))


def rope_angles(weights: Weights, n_tokens: int) -> Array:
    """Angle of each position and pair, (n_tokens, n_rot / 2): position * base^(-2i / n_rot) / factor[i] / scale."""
    sizes = decoder.read_sizes(weights)
    per_position = decoder.frequencies(sizes.rope_base, sizes.n_rot)
    if weights.has("rope_freqs.weight"):
        per_position = per_position / weights["rope_freqs.weight"]
    scaling = weights.key("rope.scaling.type", "none")
    if scaling not in {"none", "linear"}:
        raise ValueError(f"the reference knows the RoPE scalings none and linear, the file says {scaling}")
    scale = float(weights.key("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0
    return decoder.angles(n_tokens, per_position / scale)


def attention(weights: Weights, block: str, x: Array, angle: Array) -> Array:
    """Causal grouped-query attention of normed x (n_tokens, d_model)."""
    sizes = decoder.read_sizes(weights)
    q, k, v = (heads(linear(weights, f"{block}attn_{each}", x), sizes.head_dim) for each in "qkv")
    q, k = rotate(q, angle, halves=False), rotate(k, angle, halves=False)
    window = int(weights.key("attention.sliding_window", 0))
    out = decoder.attend(q, k, v, scale=sizes.head_dim**-0.5, window=window)
    return linear(weights, block + "attn_output", out)


def feed_forward(weights: Weights, block: str, x: Array) -> Array:
    """SwiGLU: down(silu(gate(x)) * up(x)) of normed x (n_tokens, d_model), or experts that do it (Mixtral)."""
    if weights.has(block + "ffn_gate_inp.weight"):
        return experts.mixture(weights, block, x, weigh=experts.summing_to_one)
    gated = decoder.silu(linear(weights, block + "ffn_gate", x)) * linear(weights, block + "ffn_up", x)
    return linear(weights, block + "ffn_down", gated)


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
