"""The parser of gpt-oss: messages on channels (https://cookbook.openai.com/articles/openai-harmony).

    <|channel|>analysis<|message|>TEXT<|end|>                                             reasoning
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>JSON<|call|>   a call
    <|start|>assistant<|channel|>final<|message|>TEXT<|return|>                           text

The header before <|message|> tells what a message is; a recipient may stand behind the role as well as behind the
channel. The arguments of a call are told as they are written. Commentary without a recipient is text. Whoever follows
no form at all is taken at his word: text.
"""

from __future__ import annotations

import json
import re
from functools import partial

from emel.text.answers.call_reader import CallReader
from emel.text.answers.call_syntax import json_text
from emel.text.answers.marks import first_of, longest_beginning
from emel.text.answers.pieces import Piece, ReasoningPiece, TextPiece, ToolCall

_MESSAGE = "<|message|>"
_HEADS = ("<|start|>", "<|channel|>")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", *_HEADS)
_HEADER_BEGINNINGS = (_MESSAGE, *_ENDS, "assistant", "to=")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([\w.-]+)")
_ARGUMENTS = re.compile(r"\s*(?=\{)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "<|end|>", "<|call|>", "<|return|>")
"""Control tokens whose text the parser must see."""


class HarmonyParser:
    """See the file's header."""

    def __init__(self, *, has_tools: bool) -> None:
        self._has_tools = has_tools
        self._held = ""
        self._is_header = True
        self._header = ""
        self._n_calls = 0
        self._reader: CallReader | None = None

    def feed(self, text: str) -> list[Piece]:
        """The pieces that have become certain."""
        self._held += text
        pieces: list[Piece] = []
        while self._read_header() if self._is_header else self._read_body(pieces):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        """The rest: no more text will come."""
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        if self._reader is not None:
            pieces += self._reader.feed(held) + self._reader.flush()
        elif not self._is_header:
            self._give(held, pieces)
        elif held.strip() and not held.lstrip().startswith("<|"):
            pieces.append(TextPiece(held))
        return pieces

    def _read_header(self) -> bool:
        """Whether a body begins: behind a header, or at once when no header does."""
        shown = self._held.lstrip()
        if any(each.startswith(shown[: len(each)]) for each in _HEADER_BEGINNINGS):
            header, met, rest = self._held.partition(_MESSAGE)
            if not met:
                return False
            self._header, self._held = header, rest
        else:
            self._header = ""
        self._is_header = False
        name = self._call_name()
        if name is not None:
            read_whole = partial(_whole_call, name)
            heads = (_ARGUMENTS,)
            self._reader = CallReader(read_whole, heads=heads, ends=_ENDS, n_calls=self._n_calls, name=name)
        return True

    def _read_body(self, pieces: list[Piece]) -> bool:
        if self._reader is not None:
            return self._read_call(self._reader, pieces)
        at, mark = first_of(self._held, _ENDS)
        if mark:
            self._give(self._held[:at], pieces)
            self._end_body(mark, self._held[at + len(mark) :])
            return True
        certain = self._held[: len(self._held) - longest_beginning(self._held, _ENDS)]
        self._held = self._held[len(certain) :]
        self._give(certain, pieces)
        return False

    def _read_call(self, reader: CallReader, pieces: list[Piece]) -> bool:
        held, self._held = self._held, ""
        pieces += reader.feed(held)
        if reader.met is None:
            return False
        self._reader, self._n_calls = None, reader.n_calls
        self._end_body(reader.met, reader.rest)
        return True

    def _end_body(self, mark: str, rest: str) -> None:
        """A head that ends a body begins the next header."""
        self._held = mark + rest if mark in _HEADS else rest
        self._is_header = True

    def _call_name(self) -> str | None:
        """The tool the message is for."""
        match = _RECIPIENT.search(self._header) if self._has_tools else None
        return None if match is None else match[1]

    def _give(self, text: str, pieces: list[Piece]) -> None:
        if text:
            channel = _CHANNEL.search(self._header)
            pieces.append(ReasoningPiece(text) if channel and channel[1] == "analysis" else TextPiece(text))


def _whole_call(name: str, text: str) -> list[ToolCall] | None:
    arguments = _object_text(text)
    return None if arguments is None else [ToolCall(name, arguments)]


def _object_text(text: str) -> str | None:
    """The JSON object in a text, written anew; None when it is none."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return json_text(value) if isinstance(value, dict) else None
