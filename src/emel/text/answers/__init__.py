"""What a model wrote, taken apart: text, reasoning, calls of tools.

    dialect = find_dialect(template.source)             # how this model writes calls
    parser = new_parser(dialect, has_tools=True)
    for chunk in stream: pieces = parser.feed(chunk)    # TextPiece, ReasoningPiece, CallBegun, CallArguments
    pieces = parser.flush()

Pure: text in, pieces out, however the text is cut. Nothing is lost: what looks like a call and is none comes as text.
"""

from emel.text.answers.dialects import Dialect, find_dialect, new_parser
from emel.text.answers.pieces import AnswerParser, CallArguments, CallBegun, Piece, ReasoningPiece, TextPiece, ToolCall
from emel.text.answers.plain import PlainParser

__all__ = [
    "AnswerParser",
    "CallArguments",
    "CallBegun",
    "Dialect",
    "Piece",
    "PlainParser",
    "ReasoningPiece",
    "TextPiece",
    "ToolCall",
    "find_dialect",
    "new_parser",
]
