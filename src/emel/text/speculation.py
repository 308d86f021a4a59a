"""Speculation: tokens that are likely to come are computed along with the one that has come, as one batch.

1. A draft is a guess of the next tokens. A step computes it behind the lane's own token, with the logits of every row.
   The sampler then chooses row by row, as it would have without: while it chooses what the draft has, the next row is
   already there. The first other choice ends it, and the memory takes the rest back.
2. So what is chosen never depends on a draft: batches do not change bits, and draws are keyed by position. Only time
   does. That is why drafts may depend on the clock.
3. Whether a guess would have been right is seen for every token, drafted or not. So each request knows for nothing how
   often guesses come true, by how much of the text before them was the same; drafts grow, shrink, stop and start again
   by that alone.
4. What a row more costs is measured, step by step, by the number of rows. A step gets the drafts that make it worth
   the most tokens in a second, of all lanes together; none when the gain is under MIN_GAIN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emel.text.speculation_lookup import MAX_MATCH, Lookup, continued

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DRAFT = 31
"""Tokens of a draft."""
MIN_GAIN = 1.08
"""What drafts must promise, in tokens per second against a step without."""
MIN_CHANCE = 0.05
"""A token less likely than that is no part of a draft."""
_ROWS_OF_A_STEP = 2
"""What a step costs without any rows, in rows, before more than one size was measured."""
_FASTER, _SLOWER = 0.5, 0.1  # weight of the latest step in its cost
_SURPRISE = 1.5  # times what was guessed: the most that a first measurement counts as
_MEMORY = 128  # steps after which a cost counts as never measured: the context grew, the machine has other work
_LEARNING = 0.1  # weight of the latest guess in a rate, at least
# By the bits of the match's length, 2-3, 4-7, 8-15, 16 and more: as found in chats with a small model.
_FIRST_RATES = (0.0, 0.0, 0.35, 0.6, 0.8, 0.95)
_FIRST_WEIGHT = 3  # guesses that a first rate counts as


class Speculator(Protocol):
    """The guesses of one request. `follow` what was chosen before asking for anything."""

    @property
    def guess_seconds(self) -> float:
        """What a guess costs before it is computed along."""

    def follow(self, ids: Sequence[int]) -> bool:
        """Takes in what is new in `ids`, which only ever grow; whether there is something to guess."""

    def chances(self, n: int) -> list[float]:
        """How likely the first 1, 2 .. n guesses are to come true, all of them; falling, cut off where hopeless."""

    def draft(self, ids: Sequence[int], n: int) -> list[int]:
        """The n tokens that are guessed to come next; fewer when it cannot. n is at most as many as `chances` gave."""

    def close(self) -> None:
        """The request is over, or gave its memory back; it may go on later."""


class LookupSpeculator:
    """Guesses by prompt lookup, and how often they come true."""

    __slots__ = ("_length", "_lookup", "_n_judged", "_n_seen", "_place", "_rates", "draft_limit")

    def __init__(self, draft_limit: int = MAX_DRAFT) -> None:
        self.draft_limit = draft_limit
        self._lookup = Lookup()
        self._rates = list(_FIRST_RATES)
        self._n_judged = [0] * len(_FIRST_RATES)
        self._n_seen = 0
        self._place, self._length = -1, 0  # of the token that is guessed to come next

    @property
    def guess_seconds(self) -> float:
        """Next to nothing."""
        return 0.0

    def follow(self, ids: Sequence[int]) -> bool:
        """Takes in what is new in `ids`, and whether it was as guessed; whether a guess may come true.

        Nothing was guessed before the first call.
        """
        place, length, at = self._place, self._length, self._n_seen
        self._n_seen = n_ids = len(ids)
        while place >= 0 and at < n_ids:
            is_right = ids[place] == ids[at]
            self._learn(min(length, MAX_MATCH).bit_length(), is_right=is_right)
            place, length = (place + 1, length + 1) if is_right else (-1, 0)
            at += 1
        if self._lookup.extend(ids) >= 0 and length < MAX_MATCH:
            found, n = self._lookup.find(ids)
            if n > length:
                place, length = found, n
        self._place, self._length = place, length
        return place >= 0 and self._rates[min(length, MAX_MATCH).bit_length()] >= MIN_CHANCE

    def chances(self, n: int) -> list[float]:
        """How likely the first 1, 2 .. n guesses are to come true, all of them; falling, cut off where hopeless."""
        chances: list[float] = []
        if self._place < 0:
            return chances
        chance, rates, length = 1.0, self._rates, self._length
        for _ in range(min(n, self.draft_limit)):
            chance *= rates[min(length, MAX_MATCH).bit_length()]
            if chance < MIN_CHANCE:
                break
            chances.append(chance)
            length += 1
        return chances

    def draft(self, ids: Sequence[int], n: int) -> list[int]:
        """The n tokens that are guessed to come next."""
        return continued(ids, self._place, n)

    def close(self) -> None:
        """There is nothing to give back."""

    def _learn(self, kind: int, *, is_right: bool) -> None:
        """The first guesses weigh more: they are all that is known of this text."""
        self._n_judged[kind] += 1
        weight = max(_LEARNING, 1 / (_FIRST_WEIGHT + self._n_judged[kind]))
        self._rates[kind] += weight * (is_right - self._rates[kind])


class StepCosts:
    """Seconds of a step by its rows, measured; what was never measured, or not for long, lies on a line between."""

    __slots__ = ("_measured", "_n_steps")

    def __init__(self) -> None:
        self._measured: dict[int, tuple[float, int]] = {}  # rows -> (seconds, the step when measured last)
        self._n_steps = 0

    def add(self, n_rows: int, seconds: float) -> None:
        """A step took so long. A step that was held up by others raises its cost but a little."""
        self._n_steps += 1
        known = self._measured.get(n_rows)
        if known is not None and known[1] >= self._n_steps - _MEMORY:
            before = known[0]
            change = min(seconds, 2 * before) - before
            seconds = before + (_FASTER if change < 0 else _SLOWER) * change
        elif guessed := self.table(n_rows, n_rows):
            seconds = min(seconds, _SURPRISE * guessed[0])
        self._measured[n_rows] = (seconds, self._n_steps)

    def table(self, first: int, last: int) -> list[float]:
        """The costs of `first`, `first` + 1 .. rows, up to `last` or twice the most that were measured.

        So what is tried grows step by step, and a guess of its cost is never far off. Empty when nothing was measured.
        """
        oldest = self._n_steps - _MEMORY
        points = sorted((n, seconds) for n, (seconds, step) in self._measured.items() if step >= oldest)
        if not points:
            return []
        (n_low, low), (n_high, high) = points[0], points[-1]
        row = low / (n_low + _ROWS_OF_A_STEP)
        end = max(2 * n_high, first)
        points = [(0, low - n_low * row), *points, (end + 1, high + (end + 1 - n_high) * row)]
        costs: list[float] = []
        right = 1
        for n in range(first, min(last, end) + 1):
            while points[right][0] < n:
                right += 1
            (n0, cost0), (n1, cost1) = points[right - 1], points[right]
            costs.append(cost0 + (cost1 - cost0) * (n - n0) / (n1 - n0))
        return costs


def share_rows(
    chances: Sequence[Sequence[float]],
    n_most: int,
    costs: StepCosts,
    guess_seconds: float = 0.0,
    n_lanes: int | None = None,
) -> list[int]:
    """How many guesses each of some lanes of a step gets, `n_most` in all: what gives the most tokens in a second.

    `chances`: of each of them; `n_lanes`: lanes of the step that decide, by default as many. A guess costs
    `guess_seconds`, and a row.
    """
    if n_lanes is None:
        n_lanes = len(chances)
    ranked = sorted(((chance, lane) for lane, each in enumerate(chances) for chance in each), reverse=True)[:n_most]
    shares = [0] * len(chances)
    if not ranked:
        return shares
    table = costs.table(n_lanes, n_lanes + len(ranked))
    if not table:
        return shares
    n_tokens, best, n_best = float(n_lanes), MIN_GAIN * n_lanes / table[0], 0
    for n, ((chance, _), cost) in enumerate(zip(ranked, table[1:], strict=False), 1):
        n_tokens += chance
        rate = n_tokens / (cost + n * guess_seconds)
        if rate > best:
            best, n_best = rate, n
    for _, lane in ranked[:n_best]:
        shares[lane] += 1
    return shares
