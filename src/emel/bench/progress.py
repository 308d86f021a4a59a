"""One line on stderr that says what is being measured, on a terminal only."""

from __future__ import annotations

import sys
from typing import TextIO


class Progress:
    """A line that overwrites itself; silent when the stream is not a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream is not None and self._stream.isatty()

    def show(self, text: str) -> None:
        """Replaces the line."""
        if self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def clear(self) -> None:
        """Leaves an empty line for what comes next."""
        self.show("")
