"""The pieces of an answer, in the order in which the model wrote them."""

from __future__ import annotations

import json
from typing import Protocol

from emel.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool: its name, and its arguments as the text of a JSON object (of its beginning, when cut short)."""

    name: str
    arguments: str

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are all of a JSON object, and not only its beginning."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


@dataclass(slots=True)  # not frozen, which takes longer to make: there is one for each token
class TextPiece:
    """Text for the reader."""

    text: str


@dataclass(slots=True)
class ReasoningPiece:
    """Text the model wrote to itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call begins, with its place among the calls of the answer; its arguments follow before anything else."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A part of the text of a call's arguments."""

    index: int
    text: str


Piece = TextPiece | ReasoningPiece | CallBegun | CallArguments


class AnswerParser(Protocol):
    """Takes an answer apart as it comes."""

    def feed(self, text: str, /) -> list[Piece]:
        """The pieces that have become certain."""

    def flush(self) -> list[Piece]:
        """The rest: no more text will come."""
