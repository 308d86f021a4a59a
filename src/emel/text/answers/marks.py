"""Where marks stand in a text, and where one may begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def first_of(text: str, marks: Sequence[str]) -> tuple[int, str]:
    """Where the first of the marks stands, and which; (-1, "") when there is none."""
    found = [(at, -len(mark), mark) for mark in marks if (at := text.find(mark)) >= 0]
    return (min(found)[0], min(found)[2]) if found else (-1, "")


def longest_beginning(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of the text that is the beginning, and no more, of a mark."""
    longest = 0
    for mark in marks:
        start = max(0, len(text) - len(mark) + 1)
        while len(text) - start > longest:
            start = text.find(mark[0], start)
            if start < 0:
                break
            if mark.startswith(text[start:]):
                longest = max(longest, len(text) - start)
            start += 1
    return longest
