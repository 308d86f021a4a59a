"""How many tokens of prompts a step reads beside lanes that decode, so that it keeps nobody waiting for long.

1. A step is taken to last as long as a sum says: so much for itself, for each row that decides, for each token of a
   prompt. What a step took more or less than the sum is put down to these three, by normalised least mean squares
   (Haykin, Adaptive Filter Theory, on the NLMS algorithm): so they are learned, from every step in which
   somebody decides.
2. Prompts get what makes a step STRETCH times as long as one in which all its lanes decode, and LEAST tokens at least,
   so that they come forward whatever it takes. All prompts of a step share them. What would leave the last of the tiles
   that matrix products make of rows half empty is left out: it takes nearly as long as a full one.
3. Time decides how many tokens a step has, never what comes of them: batches do not change bits.
"""

from __future__ import annotations

STRETCH = 2.0
"""What a step with prompts may take, in steps without."""
LEAST = 4
"""Tokens of prompts of a step, at least; the last tile is filled up."""
_TILE = 8  # rows that matrix products take at a time (native/src/kernels/matmul.h)
_ROWS, _TOKENS = 8, 16  # what counts as much as the step itself, in the learning
_LEARNING = 0.1  # of what a step took more or less than was thought, so much is believed
_FIRST = (0.8, 0.4, 1.0)  # how a step, _ROWS and _TOKENS compare before any was seen: a small model on two slow cores


class PromptShare:
    """What is known of the time of steps, and the share of prompts that follows."""

    __slots__ = ("_has_seen", "_n_least", "_n_most", "_row", "_step", "_token")

    def __init__(self, n_most: int, n_least: int = LEAST) -> None:
        self._n_most, self._n_least = n_most, min(n_least, n_most)
        self._step, self._row, self._token = _FIRST  # seconds, once one was seen: of a step, _ROWS rows, _TOKENS tokens
        self._has_seen = False

    def add(self, n_rows: int, n_tokens: int, seconds: float) -> None:
        """A step of so many rows that decided, guesses among them, and tokens of prompts took so long."""
        rows, tokens = n_rows / _ROWS, n_tokens / _TOKENS
        thought = self._step + rows * self._row + tokens * self._token
        if not self._has_seen:
            self._has_seen = seconds > 0
            scale = seconds / thought if seconds > 0 else 1.0
            self._step, self._row, self._token = scale * self._step, scale * self._row, scale * self._token
            return
        # A step that was held up by others counts as twice what was thought, at most.
        change = _LEARNING * (min(seconds, 2 * thought) - thought) / (1 + rows * rows + tokens * tokens)
        self._step = max(0.0, self._step + change)
        self._row = max(0.0, self._row + rows * change)
        self._token = max(0.0, self._token + tokens * change)

    def tokens(self, n_deciding: int, n_lanes: int) -> int:
        """Of prompts, in a step of `n_lanes` of which `n_deciding` decide."""
        n = self._fitting(self._left(n_deciding, n_lanes), self._token / _TOKENS)
        n_least = self._n_least + -(n_deciding + self._n_least) % _TILE
        return min(self._n_most, max(n_least, n - (n_deciding + n) % _TILE))

    def guesses(self, n_deciding: int, n_lanes: int, n_tokens: int) -> int:
        """How many rows of guesses still fit beside so many tokens of prompts; none is cheaper than one of those."""
        token = self._token / _TOKENS
        left = self._left(n_deciding, n_lanes) - n_tokens * token
        return max(0, self._fitting(left, max(token, self._row / _ROWS)))

    def _left(self, n_deciding: int, n_lanes: int) -> float:
        """Seconds that a step may take besides those that decide."""
        return (STRETCH - 1) * self._step + (STRETCH * n_lanes - n_deciding) / _ROWS * self._row

    def _fitting(self, seconds: float, each: float) -> int:
        return min(self._n_most, int(seconds / each)) if each > 0 else self._n_most
