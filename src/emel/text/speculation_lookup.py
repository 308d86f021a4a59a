"""Lookup: where in its own prompt and answer a text has been before, and what came then.

Repetitive text, edited code and quoted passages go on as they did the last time. The latest tokens are looked for among
all earlier ones: the longest match wins, of equals the latest.

An index of all pairs of tokens, each with the pair that was equal to it before (a hash chain, as in LZ77): one look
into a dictionary for a token, and a bounded walk for a question.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_MATCH = 2
MAX_MATCH = 16
"""A match is not looked at any further."""
MAX_WALK = 24
"""Earlier places that are compared."""


class Lookup:
    """An index over token ids that only ever grow; `extend` it with the same list, then ask."""

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}  # a pair of tokens -> where its second one came last
        self._before = array("q")  # for each token: where the pair that it ends came before, -1 for nowhere

    def extend(self, ids: Sequence[int]) -> int:
        """Takes in what is new in `ids`; where the pair that ends them came before, -1 for nowhere."""
        before, latest = self._before, self._latest
        if not before and ids:
            before.append(-1)
        for at in range(len(before), len(ids)):
            pair = ids[at - 1] << 32 | ids[at]
            before.append(latest.get(pair, -1))
            latest[pair] = at
        return before[-1] if before else -1

    def find(self, ids: Sequence[int]) -> tuple[int, int]:
        """(where the token lies that followed the latest tokens the last time, how many of them were the same).

        (-1, 0) when fewer than MIN_MATCH were. The index must have all of `ids`.
        """
        last = len(ids) - 1
        place, best = -1, 0
        at = self._before[last] if last >= 0 else -1
        for _ in range(MAX_WALK):
            if at < 0:
                break
            n = MIN_MATCH
            while n < MAX_MATCH and n <= at and ids[at - n] == ids[last - n]:
                n += 1
            if n > best:
                place, best = at + 1, n
                if n == MAX_MATCH:
                    break
            at = self._before[at]
        return place, best


def continued(ids: Sequence[int], place: int, n: int) -> list[int]:
    """The n tokens from `place` on; behind the end of `ids` they repeat what lies between `place` and the end."""
    draft = list(ids[place : place + n])
    period = len(ids) - place
    while len(draft) < n:
        draft.append(draft[len(draft) - period])
    return draft
