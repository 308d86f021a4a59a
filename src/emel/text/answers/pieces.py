"""The pieces of an answer, in the order in which the model wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool: its name, and its arguments as the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Text the model wrote to itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A whole call, with its place among the calls of the answer."""

    index: int
    call: ToolCall


Piece = TextPiece | ReasoningPiece | CallPiece


class AnswerParser(Protocol):
    """Takes an answer apart as it comes."""

    def feed(self, text: str, /) -> list[Piece]:
        """The pieces that have become certain."""

    def flush(self) -> list[Piece]:
        """The rest: no more text will come."""


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The same with neighbours of one kind put together."""
    whole: list[Piece] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if isinstance(last, TextPiece) and isinstance(piece, TextPiece):
            whole[-1] = TextPiece(last.text + piece.text)
        elif isinstance(last, ReasoningPiece) and isinstance(piece, ReasoningPiece):
            whole[-1] = ReasoningPiece(last.text + piece.text)
        else:
            whole.append(piece)
    return whole
