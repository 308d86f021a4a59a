"""How far logits are from the reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def relative_rms_error(logits: NDArray[Any], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """RMS of the difference over RMS of the expected values, for each row: (n_tokens, n_vocab) -> (n_tokens,)."""
    if logits.shape != expected.shape:
        raise ValueError(f"logits are {logits.shape}, the reference's are {expected.shape}")
    difference = logits.astype(np.float64) - expected
    error: NDArray[np.float64] = np.mean(difference**2, axis=-1) / np.mean(expected**2, axis=-1)
    return np.sqrt(error)


def disputed_positions(logits: NDArray[Any], expected: NDArray[np.float64], tolerance: float) -> list[int]:
    """Rows whose top token differs although the reference's margin exceeds `tolerance` of the row's RMS value.

    The bound is the error that is allowed, not the one that was made: with the latter no row could ever be disputed.
    """
    top_two = np.partition(expected, -2, axis=-1)[:, -2:]
    margin = top_two[:, 1] - top_two[:, 0]
    allowed = tolerance * np.sqrt(np.mean(expected**2, axis=-1))
    differs = logits.argmax(axis=-1) != expected.argmax(axis=-1)
    return [int(row) for row in np.flatnonzero(differs & (margin > allowed))]
