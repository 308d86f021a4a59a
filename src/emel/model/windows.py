"""Sliding windows of attention (https://arxiv.org/abs/2004.05150), layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.model.errors import ModelError
from emel.model.parameters import non_negative_int, positive_int

if TYPE_CHECKING:
    from emel.gguf import Metadata

FULL = 0
"""The window of a layer whose tokens see all before them."""


def read_windows(metadata: Metadata, name: str, n_layers: int, *, period: int, default: int = FULL) -> tuple[int, ...]:
    """Keys each layer's tokens see, their own included; FULL for all.

    Every `period`-th layer is full, the others have the file's `attention.sliding_window` (`default` without the key;
    FULL where neither is). A file may give another period, or for each layer whether it slides.
    """
    window = non_negative_int(metadata, f"{name}.attention.sliding_window", default)
    key = f"{name}.attention.sliding_window_pattern"
    pattern = metadata.get(key)
    if isinstance(pattern, memoryview):
        slides = list(pattern)
        if len(slides) != n_layers:
            raise ModelError(f"metadata {key!r} has {len(slides)} values: each of the {n_layers} layers needs one")
    else:
        period = positive_int(metadata, key, period)
        slides = [layer % period < period - 1 for layer in range(n_layers)]
    return tuple(window if each else FULL for each in slides)
