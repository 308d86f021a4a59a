"""What a KV cache knows of a sequence, and what a step of many sequences needs: values in, values out.

A sequence may write a block only when no other one has it. A step that adds tokens to a partial block that others have
too needs a new block for a copy of it; when all of them are in the step, the last to be served keeps it.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from emel.kernel.sizes import KV_BLOCK
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emel.memory.prefix import StoredBlock


def blocks_for(n_tokens: int) -> int:
    """Blocks that hold `n_tokens` tokens."""
    return -(-n_tokens // KV_BLOCK)


@dataclass(slots=True)
class SequenceState:
    """A sequence: its tokens, its blocks by position, and what it knows to be stored of its full ones."""

    n_tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    stored: list[StoredBlock] = field(default_factory=list)  # from the first block on
    is_private: bool = False  # publishes nothing

    def tail(self) -> int | None:
        """The block that the next token goes to, when it holds tokens already."""
        return self.blocks[self.n_tokens // KV_BLOCK] if self.n_tokens % KV_BLOCK else None


def blocks_wanted(additions: Iterable[tuple[SequenceState, int]], n_users: Callable[[int], int]) -> int:
    """New blocks that a step needs which adds so many tokens to each of some sequences, none named twice.

    `n_users(block)` says how many sequences own a block.
    """
    n_wanted = 0
    sharing: dict[int, int] = {}
    for state, n in additions:
        if n > 0:
            n_new = blocks_for(state.n_tokens + n) - len(state.blocks)
            if n_new > 0:
                n_wanted += n_new
            tail = state.tail()
            if tail is not None and n_users(tail) > 1:
                sharing[tail] = sharing.get(tail, 0) + 1
    for block, n in sharing.items():
        n_wanted += n if n_users(block) > n else n - 1
    return n_wanted
