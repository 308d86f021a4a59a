"""The search behind Q4_K, Q5_K and Q6_K: the scales for which the values of a super-block come back most exactly.

1. Each sub-block tries a range of scales. For each, values are rounded to whole numbers q, and the scale (and offset)
   that fit these best follow by least squares; the try with the least squared error wins. The idea is that of
   llama.cpp's `make_qkx2_quants` and `make_qx_quants`
   (https://github.com/ggml-org/llama.cpp/blob/b6000/ggml/src/ggml-quants.c), which weigh errors by the size of values;
   here every error counts alike.
2. Scales of a super-block are rounded to 6 (or 8) bits. Then the two numbers they are multiples of are fitted again, by
   least squares over the super-block, as long as that lowers the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Halves = NDArray[np.float16]

SUPER = 256
"""Values of a super-block."""
_SCALE_STEPS = 63
"""Scales and offsets of sub-blocks are 0 to 63 times the super-block's."""
_REFITS = 2


@dataclass(frozen=True, slots=True)
class AffineBlocks:
    """n super-blocks of 8 sub-blocks: values are d * scales * q - d_min * mins."""

    d: NDArray[np.float16]  # (n,)
    d_min: NDArray[np.float16]  # (n,)
    scales: NDArray[np.uint8]  # (n, 8), 6 bits
    mins: NDArray[np.uint8]  # (n, 8), 6 bits
    q: NDArray[np.uint8]  # (n, 8, 32)


@dataclass(frozen=True, slots=True)
class SymmetricBlocks:
    """n super-blocks of 16 sub-blocks: values are d * scales * q."""

    d: NDArray[np.float16]  # (n,)
    scales: NDArray[np.int8]  # (n, 16)
    q: NDArray[np.int8]  # (n, 16, 16), -32 to 31


def fit_affine(values: Floats, n_levels: int) -> AffineBlocks:
    """Super-blocks (n, 256) with q of 0 to n_levels - 1."""
    x = values.reshape(-1, 8, 32)
    top = np.float32(n_levels - 1)
    scales, mins = _best_affine(x, top)
    d, d_min = (_multiples_of(each) for each in (scales, mins))
    sc, mn = _rounded(scales, d), _rounded(mins, d_min)
    q, error = _affine_levels(x, _times(d, sc), _times(d_min, mn), top)
    for _ in range(_REFITS):
        new_d, new_min = _refit_affine(x, sc, mn, q)
        new_q, new_error = _affine_levels(x, _times(new_d, sc), _times(new_min, mn), top)
        better = new_error < error
        d, d_min, error = (np.where(better, a, b) for a, b in ((new_d, d), (new_min, d_min), (new_error, error)))
        q = np.where(better[:, None, None], new_q, q)
    return AffineBlocks(d, d_min, sc.astype(np.uint8), mn.astype(np.uint8), q.astype(np.uint8))


def fit_symmetric(values: Floats) -> SymmetricBlocks:
    """Super-blocks (n, 256) with q of -32 to 31."""
    x = values.reshape(-1, 16, 16)
    scales = _best_symmetric(x)
    at = np.abs(scales).argmax(axis=1)[:, None]
    # The largest scale becomes -128: the one number that 8 bits have more on that side.
    d = (np.take_along_axis(scales, at, 1)[:, 0] / -128).astype(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        sc = np.nan_to_num(np.rint(scales / d[:, None].astype(np.float32)), posinf=0, neginf=0).clip(-128, 127)
    q, error = _symmetric_levels(x, _times(d, sc))
    for _ in range(_REFITS):
        a = q * sc[:, :, None]
        new_d = _divided((x * a).sum((1, 2)), (a * a).sum((1, 2))).astype(np.float16)
        new_q, new_error = _symmetric_levels(x, _times(new_d, sc))
        better = new_error < error
        d, error = np.where(better, new_d, d), np.where(better, new_error, error)
        q = np.where(better[:, None, None], new_q, q)
    return SymmetricBlocks(d, sc.astype(np.int8), q.astype(np.int8))


# ---- sub-blocks


def _best_affine(x: Floats, top: np.float32) -> tuple[Floats, Floats]:
    """Scales and offsets (n, 8), neither negative: x is about scale * q - offset, q from 0 to top."""
    n = np.float32(x.shape[-1])
    low = np.minimum(x.min(-1), 0)
    width = x.max(-1) - low
    sum_x, sum_xx = x.sum(-1), np.einsum("bij,bij->bi", x, x)
    best = (np.zeros_like(low), -low, np.full_like(low, np.inf))
    for step in np.arange(-1.0, 1.05, 0.1, dtype=np.float32):
        factor = _divided(top + step, width)
        q = np.clip(np.rint((x - low[..., None]) * factor[..., None]), 0, top)
        sum_q, sum_qq, sum_xq = q.sum(-1), np.einsum("bij,bij->bi", q, q), np.einsum("bij,bij->bi", x, q)
        determinant = n * sum_qq - sum_q * sum_q
        scale = _divided(n * sum_xq - sum_x * sum_q, determinant)
        offset = _divided(sum_q * sum_xq - sum_qq * sum_x, determinant)
        # An offset below 0 cannot be stored, and where all q are equal there is no telling: the scale alone is fitted.
        alone = (offset < 0) | (determinant <= 0)
        scale, offset = np.where(alone, _divided(sum_xq, sum_qq), scale), np.where(alone, 0, offset)
        error = sum_xx + scale * scale * sum_qq + n * offset * offset
        error += 2 * (offset * sum_x - scale * sum_xq - scale * offset * sum_q)
        better = (error < best[2]) & (scale > 0)
        best = tuple(np.where(better, new, old) for new, old in zip((scale, offset, error), best, strict=True))
    return best[0], best[1]


def _best_symmetric(x: Floats) -> Floats:
    """Scales (n, 16) of either sign: x is about scale * q, q from -32 to 31."""
    at = np.abs(x).argmax(-1)[..., None]
    largest = np.take_along_axis(x, at, -1)[..., 0]
    scale = np.zeros_like(largest)
    best = np.full_like(largest, -np.inf)  # how much of the squares of x it takes away
    for step in np.arange(-0.9, 0.95, 0.1, dtype=np.float32):
        factor = _divided(-(32 + step), largest)
        q = np.clip(np.rint(x * factor[..., None]), -32, 31)
        sum_xq, sum_qq = np.einsum("bij,bij->bi", x, q), np.einsum("bij,bij->bi", q, q)
        new = _divided(sum_xq, sum_qq)
        gain = new * sum_xq
        better = gain > best
        scale, best = np.where(better, new, scale), np.where(better, gain, best)
    return scale


# ---- super-blocks


def _multiples_of(scales: Floats) -> Halves:
    """What scales (n, 8) are rounded to multiples of."""
    return np.asarray(scales.max(1) / _SCALE_STEPS, dtype=np.float16)


def _rounded(scales: Floats, d: Halves) -> Floats:
    return np.clip(np.rint(_divided(scales, d[:, None].astype(np.float32))), 0, _SCALE_STEPS)


def _times(d: Halves, scales: Floats) -> Floats:
    """What sub-blocks multiply by, (n, sub-blocks, 1)."""
    return (d[:, None].astype(np.float32) * scales)[..., None]


def _affine_levels(x: Floats, scale: Floats, offset: Floats, top: np.float32) -> tuple[Floats, Floats]:
    """The nearest q, and the squared error (n,) that is left."""
    q = np.clip(np.rint(_divided(x + offset, scale)), 0, top)
    error = x - scale * q + offset
    return q, np.asarray(np.einsum("bij,bij->b", error, error))


def _symmetric_levels(x: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """The nearest q, and the squared error (n,) that is left."""
    q = np.clip(np.rint(_divided(x, scale)), -32, 31)
    error = x - scale * q
    return q, np.asarray(np.einsum("bij,bij->b", error, error))


def _refit_affine(x: Floats, sc: Floats, mn: Floats, q: Floats) -> tuple[Halves, Halves]:
    """d and d_min (n,) that fit x = d * a - d_min * b best, neither negative; a = sc * q, b = mn."""
    a, b = sc[..., None] * q, np.broadcast_to(mn[..., None], q.shape)
    aa, ab, bb, xa, xb = (np.einsum("bij,bij->b", *pair) for pair in ((a, a), (a, b), (b, b), (x, a), (x, b)))
    determinant = aa * bb - ab * ab
    d = _divided(xa * bb - xb * ab, determinant)
    d_min = _divided(xa * ab - xb * aa, determinant)
    alone = (determinant <= 0) | (d_min < 0)
    d = np.where(alone, _divided(xa, aa), d)
    return np.maximum(d, 0).astype(np.float16), np.where(alone, 0, d_min).astype(np.float16)


def _divided(a: Floats | np.float32, b: Floats) -> Floats:
    """a / b, and 0 where b is 0."""
    out = np.zeros(np.broadcast_shapes(np.shape(a), b.shape), dtype=np.float32)
    return np.divide(a, b, out=out, where=b != 0)
