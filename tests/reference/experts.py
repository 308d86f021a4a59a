"""Mixtures of experts in float64 (arXiv:1701.06538), a token and an expert at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reference import decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from reference.decoder import Array
    from reference.weights import Weights


def softmax(x: Array) -> Array:
    """Over the last axis."""
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Array = shares / shares.sum(axis=-1, keepdims=True)
    return result


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up."""
    return decoder.silu(gate) * up


def mixture(
    weights: Weights,
    block: str,
    h: Array,
    *,
    score: Callable[[Array], Array] = softmax,
    weigh: Callable[[Array], Array] = lambda chosen: chosen,
    activation: Callable[[Array, Array], Array] = swiglu,
) -> Array:
    """For each row of h (n_tokens, d_model): the experts of the best scores, weighed by `weigh` of these scores.

    A file's `exp_probs_b` is added to choose, not to weigh.
    """
    n_used = int(weights.key("expert_used_count"))
    scores = score(decoder.linear(weights, block + "ffn_gate_inp", h))
    choices = scores + weights.optional(block + "exp_probs_b.bias")
    names = ("gate", "up", "down")
    matrices = {name: weights[f"{block}ffn_{name}_exps.weight"] for name in names}  # (n_experts, rows, cols)
    none = np.zeros(len(matrices["gate"]))
    biases = {
        name: weights[bias] if weights.has(bias) else none
        for name, bias in ((name, f"{block}ffn_{name}_exps.bias") for name in names)
    }
    out = np.zeros_like(h)
    for row, x in enumerate(h):
        best = np.argsort(-choices[row], kind="stable")[:n_used]
        for expert, share in zip(best, weigh(scores[row, best]), strict=True):
            gate, up = (matrices[name][expert] @ x + biases[name][expert] for name in ("gate", "up"))
            out[row] += share * (matrices["down"][expert] @ activation(gate, up) + biases["down"][expert])
    return out


def summing_to_one(chosen: Array) -> Array:
    """Shares of those chosen."""
    result: Array = chosen / chosen.sum()
    return result


def shared_expert(weights: Weights, block: str, h: Array) -> Array:
    """The expert that every token goes through."""
    gate, up = (decoder.linear(weights, f"{block}ffn_{name}_shexp", h) for name in ("gate", "up"))
    return decoder.linear(weights, block + "ffn_down_shexp", swiglu(gate, up))
