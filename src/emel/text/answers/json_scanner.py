"""Follows a JSON value (RFC 8259) as it is written, so that its beginning can be told before its end is there.

What it gives is the value as Python's json writes it: a space behind commas and colons, and no other white space.
However the text is cut, the joined pieces are the same. Line breaks in strings, which JSON forbids and models write,
are escaped.
"""

from __future__ import annotations

import json
import re
from enum import Enum

_MOST_LEVELS = 128
_MOST_DIGITS = 400
_SPACE = " \t\r\n"
_CLOSES = {"{": "}", "[": "]"}
_ESCAPES = '"\\/bfnrt'
_WORD = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


class _Wants(Enum):
    """What may come next."""

    VALUE = "a value"
    FIRST = "a value or the end of the list"
    KEY = "a key"
    FIRST_KEY = "a key or the end of the object"
    COLON = "a colon"
    NEXT = "a comma or the end"
    STRING = "the rest of a string"
    ESCAPED = "what a backslash escapes"
    HEX = "digits of an escape"
    WORD = "the rest of a number, or of true, false or null"
    NOTHING = "nothing: it is whole"


class JsonScanner:
    """One value, or with `is_inside` the rest of an object behind one of its values."""

    def __init__(self, *, is_inside: bool = False) -> None:
        self._stack = ["{"] if is_inside else []
        self._wants = _Wants.NEXT if is_inside else _Wants.VALUE
        self._is_key = False  # the string
        self._n_digits = 0
        self._word = ""
        self.is_broken = False

    @property
    def is_done(self) -> bool:
        """Whether the value is whole."""
        return self._wants is _Wants.NOTHING

    def feed(self, text: str) -> tuple[str, str]:
        """(how the value goes on, the rest of the text). A rest is what stands behind the end, or what broke it."""
        told: list[str] = []
        for at, character in enumerate(text):
            if self.is_done:
                return "".join(told), text[at:]
            piece = self._take(character)
            if piece is None:
                self.is_broken = True
                return "".join(told), self.flush() + text[at:]
            told.append(piece)
        return "".join(told), ""

    def flush(self) -> str:
        """What is held of a number or a word that was cut short."""
        word, self._word = self._word, ""
        return word

    def _take(self, character: str) -> str | None:
        """What is written for a character; None when it cannot come here."""
        wants = self._wants
        if wants is _Wants.STRING:
            return self._in_string(character)
        if wants is _Wants.ESCAPED:
            self._wants, self._n_digits = (_Wants.HEX, 4) if character == "u" else (_Wants.STRING, 0)
            return character if character in _ESCAPES or character == "u" else None
        if wants is _Wants.HEX:
            self._n_digits -= 1
            if not self._n_digits:
                self._wants = _Wants.STRING
            return character if character in "0123456789abcdefABCDEF" else None
        if wants is _Wants.WORD:
            return self._in_word(character)
        return "" if character in _SPACE else self._between(character)

    def _in_string(self, character: str) -> str:
        if character == '"':
            self._wants = _Wants.COLON if self._is_key else _Wants.NEXT
            self._end_if_outermost()
        elif character == "\\":
            self._wants = _Wants.ESCAPED
        elif character < " ":
            return json.dumps(character)[1:-1]
        return character

    def _in_word(self, character: str) -> str | None:
        if character.isascii() and (character.isalnum() or character in "+-.") and len(self._word) < _MOST_DIGITS:
            self._word += character
            return ""
        if _WORD.fullmatch(self._word) is None:
            return None
        word, self._wants = self._word, _Wants.NEXT
        after = self._take(character)
        if after is not None:
            self._word = ""
            return word + after
        return None

    def _between(self, character: str) -> str | None:
        wants = self._wants
        if wants is _Wants.COLON:
            self._wants = _Wants.VALUE
            return ": " if character == ":" else None
        if wants is _Wants.NEXT and character == ",":
            self._wants = _Wants.KEY if self._stack[-1] == "{" else _Wants.VALUE
            return ", "
        if wants in _ENDS and self._stack and character == _CLOSES[self._stack[-1]] and self._may_end(wants):
            self._stack.pop()
            self._wants = _Wants.NEXT
            self._end_if_outermost()
            return character
        if wants in (_Wants.KEY, _Wants.FIRST_KEY):
            self._wants, self._is_key = _Wants.STRING, True
            return character if character == '"' else None
        return self._value(character) if wants in (_Wants.VALUE, _Wants.FIRST) else None

    def _may_end(self, wants: _Wants) -> bool:
        return wants is _Wants.NEXT or (wants is _Wants.FIRST_KEY) == (self._stack[-1] == "{")

    def _value(self, character: str) -> str | None:
        if character in _CLOSES:
            self._stack.append(character)
            self._wants = _Wants.FIRST_KEY if character == "{" else _Wants.FIRST
            return character if len(self._stack) <= _MOST_LEVELS else None
        if character == '"':
            self._wants, self._is_key = _Wants.STRING, False
            return character
        if character.isascii() and (character.isalnum() or character == "-"):
            self._wants, self._word = _Wants.WORD, character
            return ""
        return None

    def _end_if_outermost(self) -> None:
        if not self._stack:
            self._wants = _Wants.NOTHING


_ENDS = (_Wants.NEXT, _Wants.FIRST, _Wants.FIRST_KEY)
