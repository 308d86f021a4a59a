"""Cutting text into words before merging, as `tokenizer.ggml.pre` says (the table is in pretokenizer_patterns.py).

A pre-tokenizer is a list of steps applied in turn: each cuts every piece the one before left, into its matches and what
lies between them. The regex module keeps its backtracking on the heap, so no text can overflow the stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable

    import regex


@dataclass(frozen=True)
class GroupedDigits:
    """Cuts what the pattern matches into threes counted from the right, as one writes large numbers."""

    pattern: str


@dataclass(frozen=True)
class PreTokenizer:
    """Steps, applied in turn, and what else goes by the same name."""

    steps: tuple[str | GroupedDigits, ...]
    ignore_merges: bool = False  # a word that is a token is that token (tokenizer.json: model.ignore_merges)
    add_bos: bool = False  # where the file does not say
    marks_spaces: bool = False  # the vocabulary writes spaces as U+2581 and bytes as "<0xE6>", not in GPT-2's code

    @cached_property
    def _cuts(self) -> tuple[Callable[[str], list[str]], ...]:
        import regex  # noqa: PLC0415 - 20 ms that only tokenizing needs

        def cut_by(step: str | GroupedDigits) -> Callable[[str], list[str]]:
            if isinstance(step, str):
                pattern = regex.compile(step)
                return lambda text: _cut(pattern, text)
            pattern = regex.compile(step.pattern)
            return lambda text: _cut_into_groups(pattern, text)

        return tuple(map(cut_by, self.steps))

    def split(self, text: str) -> list[str]:
        """The words of a text, in order and without loss."""
        first, *others = self._cuts
        pieces = first(text)
        for cut in others:
            pieces = [word for piece in pieces for word in (cut(piece) if len(piece) > 1 else (piece,))]
        return pieces


def word_ends(words: Iterable[str]) -> array[int]:
    """Byte offsets of the ends of words in their joined encoding."""
    from array import array  # noqa: PLC0415

    return array("Q", accumulate(len(word.encode("utf-8", "surrogateescape")) for word in words))


def _cut(pattern: regex.Pattern[str], text: str) -> list[str]:
    words: list[str] = pattern.findall(text)
    if sum(map(len, words)) == len(text):  # the usual case, and twice as fast: nothing lies between the matches
        return words
    words = []
    end = 0
    for match in pattern.finditer(text):
        start = match.start()
        if start > end:
            words.append(text[end:start])
        end = match.end()
        words.append(match[0])
    if end < len(text):
        words.append(text[end:])
    return words


def _cut_into_groups(pattern: regex.Pattern[str], text: str) -> list[str]:
    words = []
    for piece in _cut(pattern, text):
        if pattern.fullmatch(piece) is None:
            words.append(piece)
            continue
        first = len(piece) % 3 or 3
        words += [piece[:first], *(piece[start : start + 3] for start in range(first, len(piece), 3))]
    return words
