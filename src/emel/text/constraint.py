"""What a request's tokens must obey: a grammar, a schema, a choice. The sampler asks before each token."""

from __future__ import annotations

from typing import Protocol


class ConstraintFailed(RuntimeError):
    """A constraint that cannot go on in the midst of an answer: it became too complex."""


class Constraint(Protocol):
    """The state of one request's constraint. Tokens are accepted in order; nothing is taken back."""

    @property
    def is_over(self) -> bool:
        """Whether nothing but an end token may follow."""

    def mask(self) -> int | memoryview | None:
        """n_vocab bits, or their address: token i in bit i % 32 of the uint32 i / 32, 1 for allowed. None: all are.

        The memory stays as it is until the next call of `mask` or `accept`.
        """

    def accept(self, token: int) -> None:
        """Takes a token that `mask` allowed."""
