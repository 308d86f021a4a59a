"""One draw from logits by the native chain: top-k, top-p, min-p, temperature, then a draw keyed by (seed, position)."""

from __future__ import annotations

import ctypes

from emel._native import LIBRARY, check
from emel._native import abi as _abi
from emel.kernel.buffers import Memory


class NativeSampler:
    """Draws tokens with fixed parameters over `n_vocab` logits; all its memory is made at construction.

    `temperature` above 0; `top_p` in [0, 1], 1: off; `min_p` in [0, 1], 0: off; `top_k` 0: off; `seed` of 64 bits. The
    native library checks them at the first draw (NativeError). One thread at a time.
    """

    __slots__ = ("_address", "_parameters", "_scratch", "_token", "n_vocab")

    def __init__(
        self, n_vocab: int, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, seed: int = 0
    ) -> None:
        if n_vocab < 1:
            raise ValueError(f"cannot sample from {n_vocab} logits: at least 1 is needed")
        self.n_vocab = n_vocab
        self._parameters = _abi.Sampling(
            temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k, seed=seed & (2**64 - 1)
        )
        self._scratch = Memory(LIBRARY.emel_sample_scratch(n_vocab))
        self._token = ctypes.c_int32()

    def draw(self, logits_address: int, position: int) -> int:
        """A token from (n_vocab,) float32 at an address; `position` is the draw's counter. NativeError when refused."""
        parameters, scratch = self._parameters, self._scratch
        parameters.position = position
        check(
            LIBRARY.emel_sample(logits_address, self.n_vocab, parameters, scratch.address, scratch.n_bytes, self._token)
        )
        return self._token.value
