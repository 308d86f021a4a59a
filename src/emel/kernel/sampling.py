"""The next token from logits by the native chain, and log probabilities; no memory is made for a token."""

from __future__ import annotations

import ctypes
import threading
from array import array
from typing import TYPE_CHECKING

from emel._native import LIBRARY, abi, check
from emel._native.abi import Step
from emel.kernel.buffers import Memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NativeSampler", "Step", "log_probabilities"]

# What the chain does when nothing is asked for: every step off. The rest of emel_sampling's numbers are 0 then.
_OFF = {"temperature": 1.0, "typical_p": 1.0, "top_p": 1.0, "repeat_penalty": 1.0, "dynatemp_exponent": 1.0}


class _Scratch(threading.local):
    """Work space of a thread, as large as the largest it was asked for."""

    memory: Memory | None = None

    def at_least(self, n_bytes: int) -> Memory:
        memory = self.memory
        if memory is None or memory.n_bytes < n_bytes:
            memory = self.memory = Memory(n_bytes)
        return memory


_scratch = _Scratch()


class NativeSampler:
    """Chooses tokens over `n_vocab` logits by `steps` with fixed `numbers`, fields of emel_sampling by name.

    `biases`: (token, bias) pairs, -inf for never. `breakers`: token sequences that DRY sees no repetition across.
    `window`: how many of the accepted tokens the history keeps at least; None: all. The native library checks all
    values at every choice (NativeError). One thread at a time.
    """

    __slots__ = (
        "_biases",
        "_breakers",
        "_choice",
        "_history",
        "_n_scratch",
        "_parameters",
        "_tails",
        "_window",
        "n_vocab",
    )

    def __init__(
        self,
        n_vocab: int,
        *,
        seed: int = 0,
        steps: Sequence[Step] = (),
        biases: Iterable[tuple[int, float]] = (),
        breakers: Iterable[Sequence[int]] = (),
        history: Iterable[int] = (),
        window: int | None = 0,
        **numbers: float,
    ) -> None:
        if n_vocab < 1:
            raise ValueError(f"cannot sample from {n_vocab} logits: at least 1 is needed")
        self.n_vocab = n_vocab
        self._window = window
        self._history = array("i", history)
        self._choice = abi.Choice()
        self._parameters = abi.Sampling(**(_OFF | numbers), seed=seed & (2**64 - 1), n_steps=len(steps))
        self._parameters.steps[: len(steps)] = [int(step) for step in steps]
        self._set_breakers(sorted(tuple(each) for each in breakers if each))
        self._biases: ctypes.Array[abi.LogitBias] | None = None
        self.set_biases(biases)
        self._set_history()

    def choose(self, logits_address: int, position: int, allowed: int = 0) -> int:
        """A token from (n_vocab,) float32 at an address; `position` is the draw's counter.

        `allowed`: the address of n_vocab bits, 0 for no restriction. NativeError when nothing is allowed, or refused.
        """
        parameters, scratch, choice = self._parameters, _scratch.at_least(self._n_scratch), self._choice
        parameters.position = position
        parameters.allowed = allowed
        check(LIBRARY.emel_choose(logits_address, self.n_vocab, parameters, scratch.address, scratch.n_bytes, choice))
        token: int = choice.token
        return token

    @property
    def surprise(self) -> float:
        """-log2 of the probability that the latest choice had among what the steps left; 0 when it was greedy."""
        surprise: float = self._choice.surprise
        return surprise

    @property
    def mu(self) -> float:
        """Mirostat's state: the largest surprise it allows, in bits."""
        mu: float = self._parameters.mirostat_mu
        return mu

    @mu.setter
    def mu(self, value: float) -> None:
        self._parameters.mirostat_mu = value

    def accept(self, token: int) -> None:
        """Adds a token to the history."""
        history, window = self._history, self._window
        if window == 0:
            return
        history.append(token)
        if window is not None and len(history) >= 2 * window + 256:
            del history[:-window]
        self._set_history()

    def set_biases(self, biases: Iterable[tuple[int, float]]) -> None:
        """Replaces the biases."""
        entries = [abi.LogitBias(token, bias) for token, bias in biases]
        self._biases = (abi.LogitBias * len(entries))(*entries)
        self._parameters.biases = ctypes.addressof(self._biases)
        self._parameters.n_biases = len(entries)

    def _set_history(self) -> None:
        address, n = self._history.buffer_info()
        self._parameters.history = address
        self._parameters.n_history = n
        # A power of two above it: the scratch is not asked to grow with every token.
        self._n_scratch = LIBRARY.emel_choose_scratch(self.n_vocab, 1 << n.bit_length())

    def _set_breakers(self, breakers: Sequence[Sequence[int]]) -> None:
        tails = array("i")
        entries = []
        for head, *tail in breakers:
            entries.append(abi.Breaker(head, len(tails), len(tail)))
            tails.extend(tail)
        self._tails = tails
        self._breakers = (abi.Breaker * len(entries))(*entries)
        self._parameters.breakers = ctypes.addressof(self._breakers)
        self._parameters.n_breakers = len(entries)
        self._parameters.breaker_tails = tails.buffer_info()[0]
        self._parameters.n_breaker_tails = len(tails)


def log_probabilities(logits_address: int, n_vocab: int, token: int, n_top: int) -> list[tuple[int, float]]:
    """(id, log probability) of the token, then of the `n_top` (at most 20) likeliest of (n_vocab,) float32 logits.

    Natural logarithms, always finite; among equals the lowest id first. NativeError for a token outside the vocabulary.
    """
    n_top = min(n_top, n_vocab)
    ids, logprobs = (ctypes.c_int32 * (1 + n_top))(), (ctypes.c_double * (1 + n_top))()
    scratch = _scratch.at_least(LIBRARY.emel_choose_scratch(n_vocab, 0))
    check(LIBRARY.emel_logprobs(logits_address, n_vocab, token, n_top, scratch.address, scratch.n_bytes, ids, logprobs))
    return list(zip(ids, logprobs, strict=True))
