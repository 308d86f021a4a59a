"""Logits of the float64 references, and how far an engine's are from them; nothing of EMEL's own is used here."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from reference.weights import Weights

TYPES = ("F32", "Q8_0", "Q4_K")
N_TOKENS = 40  # two and a half KV blocks, more than the windows of tiny_models.py
IDS = [int(token) for token in np.random.default_rng(1).integers(1, 257, N_TOKENS)]


def reference_of(weights: Weights, ids: Sequence[int]) -> NDArray[np.float64]:
    """The float64 logits (n_tokens, n_vocab) of the architecture's reference."""
    module: Any = import_module(f"reference.{weights.architecture.replace('-', '_')}")
    logits: NDArray[np.float64] = module.forward(weights, ids)
    return logits


def total_error(logits: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """RMS of the difference over RMS of the expected values, over all positions at once."""
    difference = logits.astype(np.float64) - expected
    return float(np.sqrt(np.mean(difference**2) / np.mean(expected**2)))


def tensor_digest(path: Path) -> str:
    """The first 16 digits of a SHA-256 over every tensor's name, shape and bytes."""
    digest = hashlib.sha256()
    for tensor in gguf.GGUFReader(path).tensors:
        digest.update(f"{tensor.name} {list(tensor.shape)} {tensor.tensor_type.name}\n".encode())
        digest.update(tensor.data.tobytes())
    return digest.hexdigest()[:16]
