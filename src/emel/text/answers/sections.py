"""The parser of answers that mark sections: reasoning between two marks, calls between two others, text around them.

1. Reasoning begins with its mark before any other text, or was begun by the prompt. White space around it is dropped.
2. A call's section begins with one of the dialect's marks, or, where the dialect allows it, without any when the first
   character opens a JSON object or a list of calls; it ends with its mark or with the answer. Calls are told while they
   are written where a mark says that they are some (emel.text.answers.call_reader).
3. A section that holds no call is text, marks included. So is one that was not closed and holds none.
4. White space around calls is dropped; at the end of text it is kept.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from emel.text.answers.call_reader import CallReader
from emel.text.answers.marks import first_of, longest_beginning
from emel.text.answers.pieces import Piece, ReasoningPiece, TextPiece

if TYPE_CHECKING:
    from emel.text.answers.dialects import Dialect


class _Section(Enum):
    START = "start"
    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class SectionParser:
    """See the file's header. `is_reasoning`: the prompt ended with the mark that begins it."""

    def __init__(self, dialect: Dialect, *, has_tools: bool, is_reasoning: bool = False) -> None:
        self._dialect = dialect
        self._begins = dialect.call_begins if has_tools else ()
        self._may_be_bare = has_tools and dialect.may_be_bare
        self._section = _Section.REASONING if is_reasoning else _Section.START
        self._held = ""
        self._reader: CallReader | None = None  # of the section of a call
        self._is_fresh = True  # nothing of this section was given yet
        self._drops_space = False  # what was before has ended: white space up to the next word is nobody's
        self._n_calls = 0

    def feed(self, text: str) -> list[Piece]:
        """The pieces that have become certain."""
        self._held += text
        pieces: list[Piece] = []
        while self._step(pieces):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        """The rest: no more text will come."""
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        if self._reader is not None:
            pieces += self._reader.feed(held) + self._reader.flush()
        elif self._section is _Section.REASONING:
            self._give_reasoning(held.rstrip(), pieces)
        elif not self._drops_space:
            self._give_text(held, pieces)
        return pieces

    # ---- sections

    def _step(self, pieces: list[Piece]) -> bool:
        """Whether another section began, so that what is held must be looked at again."""
        if self._drops_space:
            self._held = self._held.lstrip()
            self._drops_space = not self._held
        if self._section is _Section.START:
            return self._start()
        if self._section is _Section.REASONING:
            return self._reason(pieces)
        if self._section is _Section.TEXT:
            return self._tell(pieces)
        assert self._reader is not None
        return self._call(self._reader, pieces)

    def _start(self) -> bool:
        """Reasoning, a bare call or text: the first characters tell."""
        shown = self._held.lstrip()
        think, _ = self._dialect.reasoning
        if not shown or (think and think.startswith(shown) and shown != think):
            return False
        if think and shown.startswith(think):
            self._enter(_Section.REASONING, shown[len(think) :])
        elif self._may_be_bare and shown[0] in "{[":
            self._enter_call("", self._held)
        else:
            self._enter(_Section.TEXT, self._held)
        return True

    def _reason(self, pieces: list[Piece]) -> bool:
        _, end = self._dialect.reasoning
        before, met, after = self._held.partition(end)
        if met:
            self._give_reasoning(before.rstrip(), pieces)
            self._enter(_Section.START, after)
            self._drops_space = True
            return True
        certain = before[: len(before) - longest_beginning(before, (end,))].rstrip()
        self._held = self._held[len(certain) :]
        self._give_reasoning(certain, pieces)
        return False

    def _tell(self, pieces: list[Piece]) -> bool:
        at, mark = first_of(self._held, self._begins)
        if mark:
            self._give_text(self._held[:at].rstrip(), pieces)
            self._enter_call(mark, self._held[at + len(mark) :])
            return True
        certain = self._held[: len(self._held) - longest_beginning(self._held, self._begins)]
        if self._begins:  # white space before a call is none of the text
            certain = certain.rstrip()
        self._held = self._held[len(certain) :]
        self._give_text(certain, pieces)
        return False

    def _call(self, reader: CallReader, pieces: list[Piece]) -> bool:
        held, self._held = self._held, ""
        pieces += reader.feed(held)
        if reader.met is None:
            return False
        self._reader, self._n_calls = None, reader.n_calls
        self._enter(_Section.TEXT, reader.rest)
        self._drops_space = reader.ends_with_call
        return True

    def _enter_call(self, mark: str, held: str) -> None:
        dialect, end = self._dialect, self._dialect.call_ends.get(mark)
        self._enter(_Section.CALL, held)
        self._reader = CallReader(
            dialect.read_calls,
            heads=dialect.heads if mark else (),  # a bare object may be an answer to the end
            mark=mark,
            ends=(end,) if end else (),
            n_calls=self._n_calls,
        )

    def _enter(self, section: _Section, held: str) -> None:
        self._section, self._held, self._is_fresh = section, held, True

    def _give_text(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(TextPiece(text))

    def _give_reasoning(self, text: str, pieces: list[Piece]) -> None:
        if self._is_fresh:
            text = text.lstrip()
        if text:
            self._is_fresh = False
            pieces.append(ReasoningPiece(text))
