"""SequenceMemory: what a wave asks of a model's memory, whatever kinds of layers the model has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class SequenceMemory(Protocol):
    """KvCache and HybridCache. Questions (`can_`, `free_`, `n_`) change nothing; the rest is all or nothing."""

    @property
    def n_ctx(self) -> int:
        """Tokens a sequence may have."""

    @property
    def n_blocks(self) -> int:
        """Blocks there are."""

    @property
    def reach(self) -> int:
        """How many of its latest tokens a sequence can forget at any time; n_ctx: all of them.

        One that cannot forget all is found again only from the borders of blocks that a step ended near (HybridCache).
        """

    def can_open(self) -> bool:
        """Whether a row is free."""

    def can_open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True, n_spare: int = 0) -> bool:
        """Whether a row is free, and blocks for all these tokens, with `n_spare` left over."""

    def open_with_prefix(self, token_ids: Sequence[int], *, reuse: bool = True) -> tuple[int, int]:
        """A new sequence and how many of the tokens it holds already; CacheFullError."""

    def fork(self, parent: int) -> int:
        """A sequence with the same tokens; CacheFullError."""

    def can_reserve_all(self, additions: Sequence[tuple[int, int]]) -> bool:
        """Whether all of these tokens fit together, given as (sequence, n)."""

    def reserve_all(self, additions: Sequence[tuple[int, int]]) -> list[int]:
        """Makes room for them; the position of each one's first token; CacheFullError."""

    def advance(self, additions: Sequence[tuple[int, int]]) -> int:
        """As reserve_all of the same additions again: a token for each, a block free for each, and no fork since.

        Returns how often that can be done again before any of them needs a block.
        """

    def n_tokens(self, sequence: int) -> int:
        """Tokens the sequence holds."""

    def can_rollback(self, sequence: int, n: int) -> bool:
        """Whether the last n tokens can be forgotten."""

    def rollback(self, sequence: int, n: int) -> None:
        """Forgets the last n tokens."""

    def publish(self, sequence: int, token_ids: Sequence[int]) -> int:
        """Lets others find its full blocks."""

    def close_sequence(self, sequence: int) -> None:
        """Gives its memory back."""

    def free_blocks(self) -> int:
        """Blocks that can be had."""
