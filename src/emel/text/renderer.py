"""Bytes of tokens -> text that can be shown, piece by piece. Pure: no clock, no I/O.

1. A character is emitted whole or not at all: the bytes of an unfinished one wait for the rest.
2. U+FFFD stands only for bytes that no continuation can make valid (and, at the end, for an unfinished character).
3. Text ends before the first stop string that completes, even across tokens; of two that complete at once, before the
   longer. What could still become a stop string waits; once it cannot, it is emitted, exactly once.
4. However the bytes are cut, the pieces joined are the same.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emel.text.stop_strings import StopStrings

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Renderer:
    """Feed it the bytes of one token after the other; once `stop` is set, everything further is ignored."""

    __slots__ = ("_decoder", "_held", "_node", "_stops", "stop")

    def __init__(self, stops: StopStrings) -> None:
        """stops: strings that end the text and are not part of it."""
        self.stop: str | None = None
        """The stop string that was met."""
        self._stops = stops
        self._node = 0  # of the automaton
        self._decoder = _new_decoder("replace")
        self._held = ""

    @property
    def has_stops(self) -> bool:
        """Whether there are strings that end the text."""
        return bool(self._stops.stops)

    def feed(self, data: bytes) -> str:
        """The text that has become certain, possibly empty."""
        decoder = self._decoder
        # Plain ASCII behind whole characters, as most tokens are, needs no decoder.
        new = data.decode("ascii") if data.isascii() and not decoder.buffer else decoder.decode(data)
        return self._release(new) if self._stops.stops else new

    def flush(self) -> str:
        """The rest: no more bytes will come."""
        text = self._release(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text + rest

    def _release(self, new: str) -> str:
        if self.stop is not None:
            return ""
        self._node, n_read, self.stop = self._stops.find(new, self._node)
        text = self._held + new[:n_read]
        if self.stop is not None:
            self._held = ""
            return text[: -len(self.stop)]
        n_certain = len(text) - self._stops.n_held(self._node)
        self._held = text[n_certain:]
        return text[:n_certain]
