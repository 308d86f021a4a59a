"""Bytes of tokens -> text that can be shown, piece by piece. Pure: no clock, no I/O.

1. A character is emitted whole or not at all: the bytes of an unfinished one wait for the rest.
2. U+FFFD stands only for bytes that no continuation can make valid (and, at the end, for an unfinished character).
3. Text ends before the first stop string that completes, even across tokens; of two that complete at once, before the
   longer. What could still become a stop string waits; once it cannot, it is emitted, exactly once.
4. However the bytes are cut, the pieces joined are the same: render() is one feed and a flush.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Renderer:
    """Feed it the bytes of one token after the other; once `stop` is set, everything further is ignored."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        """stops: strings that end the text and are not part of it; ValueError for an empty one or one string alone."""
        if isinstance(stops, str) or not all(isinstance(each, str) and each for each in stops):
            raise ValueError(f"stop strings must be a list of texts with at least one character each, not {stops!r}")
        self.stop: str | None = None
        """The stop string that was met."""
        self._stops = tuple(stops)
        self._decoder = _new_decoder("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """The text that has become certain, possibly empty."""
        return self._release(self._decoder.decode(data))

    def flush(self) -> str:
        """The rest: no more bytes will come."""
        text = self._release(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text + rest

    def _release(self, new: str) -> str:
        if self.stop is not None:
            return ""
        text = self._held + new
        met = _first_stop(text, self._stops)
        if met is not None:
            start, self.stop = met
            self._held = ""
            return text[:start]
        n_certain = len(text) - longest_beginning(text, self._stops)
        self._held = text[n_certain:]
        return text[:n_certain]


def render(data: bytes, stops: Sequence[str] = ()) -> tuple[str, str | None]:
    """The text of all bytes, and the stop string that ended it, if any."""
    renderer = Renderer(stops)
    text = renderer.feed(data) + renderer.flush()
    return text, renderer.stop


def _first_stop(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    """Where the stop string that completes first starts, and which it is."""
    matches = ((text.find(each), each) for each in stops)
    found = [(start + len(each), start, each) for start, each in matches if start >= 0]
    if not found:
        return None
    _, start, stop = min(found)
    return start, stop


def longest_beginning(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of the text that is the beginning, and no more, of a stop string."""
    longest = 0
    for stop in stops:
        start = max(0, len(text) - len(stop) + 1)
        while len(text) - start > longest:
            start = text.find(stop[0], start)
            if start < 0:
                break
            if stop.startswith(text[start:]):
                longest = max(longest, len(text) - start)
            start += 1
    return longest
