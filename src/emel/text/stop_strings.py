"""StopStrings: finds the first of many strings in a text that comes piece by piece, one step for each character.

An automaton (Aho and Corasick, Efficient String Matching, 1975): a node for each beginning of a string. The node after
a character is the longest end of the text so far that is the beginning of one, so its depth says what must be held.
Immutable: what a text has led to is a node's number, 0 before its first character.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHARACTERS = 0x110000


class StopStrings:
    """Strings that end a text, with what finds them; ValueError for an empty one, and for one string alone."""

    __slots__ = ("_depths", "_fallbacks", "_found", "_next", "stops")

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or not all(isinstance(each, str) and each for each in stops):
            raise ValueError(f"stop strings must be a list of texts with at least one character each, not {stops!r}")
        self.stops = tuple(stops)
        self._next: dict[int, int] = {}  # node * _CHARACTERS + character -> node
        self._depths = array("i", [0])
        self._found = array("i", [-1])  # the longest string that ends at a node
        parents, characters = array("i", [0]), array("i", [0])
        for index, stop in enumerate(self.stops):
            node = 0
            for depth, character in enumerate(map(ord, stop), 1):
                parent, node = node, self._next.setdefault(node * _CHARACTERS + character, len(parents))
                if node == len(parents):
                    parents.append(parent)
                    characters.append(character)
                    self._depths.append(depth)
                    self._found.append(-1)
            self._found[node] = index
        # The longest end of a node's text that is another node's, found for short texts first.
        self._fallbacks = array("i", bytes(4 * len(parents)))
        for node in sorted(range(1, len(parents)), key=self._depths.__getitem__):
            if self._depths[node] > 1:
                fallback = self._step(self._fallbacks[parents[node]], characters[node])
                self._fallbacks[node] = fallback
                if self._found[node] < 0:
                    self._found[node] = self._found[fallback]

    def find(self, text: str, node: int) -> tuple[int, int, str | None]:
        """(node, characters read, string) after `text`, which comes behind what led to `node`.

        Reads up to the end of the first string that completes, of two that complete at once the longer; None: all.
        """
        if not self.stops:
            return 0, len(text), None
        for n_read, character in enumerate(text, 1):
            node = self._step(node, ord(character))
            found = self._found[node]
            if found >= 0:
                return node, n_read, self.stops[found]
        return node, len(text), None

    def n_held(self, node: int) -> int:
        """Characters at the end of the text that are the beginning of a string."""
        return self._depths[node]

    def _step(self, node: int, character: int) -> int:
        following = self._next
        while True:
            found = following.get(node * _CHARACTERS + character)
            if found is not None:
                return found
            if not node:
                return 0
            node = self._fallbacks[node]
