"""Reads the calls of one section of an answer, and tells their arguments as they are written.

1. A call whose name stands before an object of arguments is told as soon as that object begins, and then piece by
   piece. Arguments that are cut short, or stop being JSON, are told as far as they are the beginning of some; what was
   written behind that is text.
2. Everything else is held to the end of the section, and then is whole calls, or text when it is none.
3. The end of the section is not looked for inside of arguments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emel.text.answers.json_scanner import JsonScanner
from emel.text.answers.marks import first_of, longest_beginning
from emel.text.answers.pieces import CallArguments, CallBegun, Piece, TextPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.text.answers.pieces import ToolCall

JSON_HEAD = re.compile(
    r"""[\s\[,;]*\{\s*"name"\s*:\s*"([A-Za-z_][\w.-]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)"""
)
"""A JSON object up to its arguments; behind them it is closed."""
NAMED_HEAD = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([A-Za-z_][\w.-]*)(?:\[CALL_ID\]\w+)?\[ARGS\]\s*(?=\{)")
"""Mistral's name before its arguments; nothing is behind them."""
_CLOSING = " \t\r\n,;]}"


class CallReader:
    """See the file's header."""

    def __init__(
        self,
        read_calls: Callable[[str], list[ToolCall] | None],
        *,
        heads: Sequence[re.Pattern[str]] = (),
        mark: str = "",
        ends: Sequence[str] = (),
        n_calls: int = 0,
        name: str | None = None,
    ) -> None:
        """mark: what began the section, told when it is text. ends: any of them ends it; none: the answer does.

        n_calls: calls before this section. name: of the call the section is, where `heads` do not tell it.
        """
        self._read_calls, self._heads, self._mark, self._ends, self._name = read_calls, heads, mark, ends, name
        self.n_calls = n_calls
        self.met: str | None = None
        """The mark that ended the section; None while it has not ended."""
        self.rest = ""
        """What stands behind it."""
        self.ends_with_call = False
        self._held = ""
        self._arguments: JsonScanner | None = None  # of the call that is being told
        self._closing: JsonScanner | None = None  # of the object around its arguments
        self._has_told = False

    def feed(self, text: str) -> list[Piece]:
        """The pieces that have become certain."""
        self._held += text
        pieces: list[Piece] = []
        while self.met is None and self._step(pieces):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        """The rest: no more text will come."""
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        if self._arguments is None:
            self._end(held, "", pieces)
        elif cut := self._arguments.flush():
            pieces.append(CallArguments(self.n_calls - 1, cut))
        elif held:
            pieces.append(TextPiece(held))
        return pieces

    def _step(self, pieces: list[Piece]) -> bool:
        """Whether what is held must be looked at again."""
        if self._arguments is not None:
            return self._broken(pieces) if self._arguments.is_broken else self._tell(pieces, self._arguments)
        if self._closing is not None:
            return self._close(self._closing)
        for head in self._heads:
            if match := head.match(self._held):
                return self._begin(match, pieces)
        at, end = first_of(self._held, self._ends)
        if not end:
            return False
        body, self.rest = self._held[:at], self._held[at + len(end) :]
        self.met, self._held = end, ""
        self._end(body, end, pieces)
        return False

    def _begin(self, match: re.Match[str], pieces: list[Piece]) -> bool:
        pieces.append(CallBegun(self.n_calls, self._name or match[1]))
        self.n_calls += 1
        self._has_told = self.ends_with_call = True
        self._arguments = JsonScanner()
        self._closing = JsonScanner(is_inside=True) if match.re is JSON_HEAD else None
        self._held = self._held[match.end() :]
        return True

    def _tell(self, pieces: list[Piece], arguments: JsonScanner) -> bool:
        told, self._held = arguments.feed(self._held)
        if told:
            pieces.append(CallArguments(self.n_calls - 1, told))
        if arguments.is_done:
            self._arguments = None
            return True
        return arguments.is_broken

    def _close(self, closing: JsonScanner) -> bool:
        """Drops what an object has behind its arguments."""
        _, self._held = closing.feed(self._held)
        if not closing.is_done and not closing.is_broken:
            return False
        self._closing = None
        return True

    def _broken(self, pieces: list[Piece]) -> bool:
        """What arguments that are no JSON go on with is text, to the end of the section."""
        at, end = first_of(self._held, self._ends)
        certain = self._held[:at] if end else self._held[: len(self._held) - longest_beginning(self._held, self._ends)]
        if certain:
            pieces.append(TextPiece(certain))
        self._held = self._held[len(certain) :]
        if end:
            self.met, self.rest, self._held = end, self._held[len(end) :], ""
        return False

    def _end(self, body: str, end: str, pieces: list[Piece]) -> None:
        """Gives the calls that are left, or text when there are none."""
        if self._has_told and not body.strip(_CLOSING):
            return
        calls = self._read_calls(body)
        self.ends_with_call = calls is not None
        if calls is None:
            text = body if self._has_told else self._mark + body + end
            pieces.extend([TextPiece(text)] if text else [])
            return
        for call in calls:
            pieces += (CallBegun(self.n_calls, call.name), CallArguments(self.n_calls, call.arguments))
            self.n_calls += 1
