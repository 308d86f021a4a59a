"""Special tokens in text: cutting it at them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from emel.text.token_trie import TokenTrie

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.text.vocabulary import Vocabulary

_SPACES = " \t\n\v\f\r"


class SpecialPattern:
    """Cuts text at the tokens of some GGUF types: leftmost first, the longest at each place; linear in the text.

    strips_left, strips_right: ids of tokens that swallow the white space before or behind them.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        types: tuple[int, ...],
        *,
        strips_left: frozenset[int] = frozenset(),
        strips_right: frozenset[int] = frozenset(),
    ) -> None:
        self._vocabulary = vocabulary
        self._types = types
        self._strips_left = strips_left
        self._strips_right = strips_right

    def partition(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Pairs of an ordinary fragment (maybe empty) and the special token behind it (None at the end)."""
        data = text.encode("utf-8", "surrogateescape")
        last_end, last_id = 0, None
        for begin, end, token_id in self._trie.find(data):
            yield self._fragment(data[last_end:begin], last_id, token_id), token_id
            last_end, last_id = end, token_id
        yield (text if last_id is None else self._fragment(data[last_end:], last_id, None)), None

    def _fragment(self, data: bytes, before: int | None, behind: int | None) -> str:
        text = data.decode("utf-8", "surrogateescape")
        if before in self._strips_right:
            text = text.lstrip(_SPACES)
        return text.rstrip(_SPACES) if behind in self._strips_left else text

    @cached_property
    def _trie(self) -> TokenTrie:
        return TokenTrie(self._vocabulary, self._types)
