"""The parser of answers that are nothing but text."""

from __future__ import annotations

from emel.text.answers.pieces import Piece, TextPiece


class PlainParser:
    """Gives the text as it comes."""

    def feed(self, text: str) -> list[Piece]:
        """The text, if there is any."""
        return [TextPiece(text)] if text else []

    def flush(self) -> list[Piece]:
        """Nothing is held back."""
        return []
