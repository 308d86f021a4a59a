"""Inverse frequencies of rotary position embeddings (https://arxiv.org/abs/2104.09864), in double precision."""

from __future__ import annotations

import ctypes
from array import array
from typing import TYPE_CHECKING

from emel._native import LIBRARY, check
from emel._native import abi as _abi
from emel.kernel.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BASE = 1e300


def yarn_frequencies(
    base: float,
    n_rot: int,
    *,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    keep_fractions: bool = False,
) -> tuple[array[float], float]:
    """YaRN's (n_rot / 2,) float64 frequencies, and the magnitude of its cosines and sines (arXiv:2309.00071).

    `keep_fractions` leaves the ends of its ramp unrounded (`truncate: false` of gpt-oss). NativeError names the number
    that is out of its range.
    """
    frequencies = array("d", bytes(8 * max(n_rot // 2, 1)))
    yarn = _abi.Yarn(base, factor, original_context, beta_fast, beta_slow, max(n_rot, 0), keep_fractions)
    magnitude = ctypes.c_double()
    check(LIBRARY.emel_rope_yarn(yarn, address_of(frequencies), magnitude))
    return frequencies, magnitude.value


def long_rope_magnitude(factor: float, original_context: int) -> float:
    """LongRoPE's magnitude for a context of `factor` times the original one (arXiv:2402.13753)."""
    magnitude = ctypes.c_double()
    check(LIBRARY.emel_rope_long_magnitude(factor, original_context, magnitude))
    return magnitude.value


def rope_frequencies(
    base: float, n_rot: int, *, factors: Sequence[float] | None = None, linear_scale: float = 1.0
) -> array[float]:
    """(n_rot / 2,) float64: base^(-2i/n_rot) / (factors[i] * linear_scale).

    `factors` are those of a file's rope_freqs.weight (Llama 3.1); `linear_scale` stretches the context (position
    interpolation, https://arxiv.org/abs/2306.15595). ValueError for an odd or empty n_rot, a base below 1, a scale that
    is not positive, either not finite, or factors of another length.
    """
    if n_rot < 2 or n_rot % 2:
        raise ValueError(f"cannot rotate {n_rot} dimensions: an even number from 2 is needed")
    if not 1.0 <= base <= MAX_BASE:
        raise ValueError(f"the RoPE base is {base}: 1 to {MAX_BASE:g} are allowed")
    if not 0.0 < linear_scale < float("inf"):
        raise ValueError(f"the RoPE linear scale is {linear_scale}: it must be positive and finite")
    frequencies = array("d", bytes(8 * (n_rot // 2)))
    check(LIBRARY.emel_rope_frequencies(base, n_rot, address_of(frequencies)))
    if factors is None:
        factors = (1.0,) * len(frequencies)
    if len(factors) != len(frequencies):
        raise ValueError(f"{len(factors)} RoPE factors for {n_rot} rotated dimensions: {n_rot // 2} are needed")
    for index, factor in enumerate(factors):
        if not 0.0 < factor < float("inf"):
            raise ValueError(f"RoPE factor {index} is {factor}: it must be positive and finite")
        frequencies[index] /= factor * linear_scale
    return frequencies
