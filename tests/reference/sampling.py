"""The sampling chain in float64 NumPy, as its steps are defined: slow and obvious. Logits of -inf are out.

Definitions: llama.cpp (src/llama-sampling.cpp). Better means a larger logit, and among equals a lower id.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@dataclass
class Reference:
    """Parameters, all off unless given."""

    temperature: float = 1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_n_sigma: float = -1.0
    top_k: int = 0
    typical_p: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    min_keep: int = 0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    mirostat: int = 0
    mirostat_mu: float = 10.0
    biases: dict[int, float] = field(default_factory=dict)
    breakers: Sequence[Sequence[int]] = ()
    history: Sequence[int] = ()
    order: Sequence[str] = ORDER

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n_vocab,) of a draw after all steps."""
        values = logits.astype(np.float64)
        for token, bias in self.biases.items():
            values[token] += bias
        if self.mirostat:
            values = getattr(self, f"mirostat_{self.mirostat}")(values / self.temperature)
        else:
            for step in self.order:
                values = getattr(self, f"after_{step}")(values)
        return softmax(values)

    def after_penalties(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each recent token pays once for being there, and for each time it was."""
        changed = logits.copy()
        for token, n in Counter(last(self.history, self.repeat_last_n)).items():
            logit = changed[token]
            logit = logit * self.repeat_penalty if logit <= 0 else logit / self.repeat_penalty
            changed[token] = logit - n * self.frequency_penalty - self.presence_penalty
        return changed

    def after_dry(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each place before the end, how long the tokens up to there equal those at the end."""
        tokens = last(self.history, self.dry_penalty_last_n)
        limit = self.since_breaker(tokens)
        changed = logits.copy()
        if not self.dry_multiplier or len(tokens) <= self.dry_allowed_length or limit < self.dry_allowed_length:
            return changed
        longest: dict[int, int] = {}
        for end in range(1, len(tokens)):  # tokens[:end] is what came before tokens[end]
            n = 0
            while n < end and tokens[end - 1 - n] == tokens[-1 - n]:
                n += 1
            n = min(n, limit)
            if n >= self.dry_allowed_length:
                longest[tokens[end]] = max(longest.get(tokens[end], 0), n)
        for token, n in longest.items():
            if (token,) not in [tuple(each) for each in self.breakers]:
                changed[token] -= self.dry_multiplier * self.dry_base ** (n - self.dry_allowed_length)
        return changed

    def since_breaker(self, tokens: Sequence[int]) -> int:
        """How many tokens follow the breaker that starts latest, the longest of those that start there."""
        for start in range(len(tokens) - 1, -1, -1):
            lengths = [len(each) for each in self.breakers if tuple(tokens[start : start + len(each)]) == tuple(each)]
            if lengths:
                return len(tokens) - start - max(lengths)
        return len(tokens)

    def after_top_n_sigma(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Those at most n standard deviations below the largest."""
        left = logits[logits > -np.inf]
        threshold = left.max() - self.top_n_sigma * left.std() if self.top_n_sigma > 0 else -np.inf
        return np.where(logits >= threshold, logits, -np.inf)

    def after_top_k(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The k best."""
        return only(logits, ranking(logits)[: self.top_k or None])

    def after_typ_p(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Those whose information is nearest the entropy."""
        if self.typical_p >= 1:
            return logits
        weights = softmax(logits)
        ids = np.flatnonzero(weights)
        information = -np.log(weights[ids])
        distance = np.abs(information - (weights[ids] * information).sum())
        ids = ids[np.lexsort((ids, distance))]
        n = 1 + int((np.cumsum(weights[ids]) <= self.typical_p).sum())
        return only(logits, ids[: max(n, self.min_keep)])

    def after_top_p(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The shortest beginning that reaches p."""
        if self.top_p >= 1:
            return logits
        ids = ranking(logits)
        n = 1 + int((np.cumsum(softmax(logits)[ids]) < self.top_p).sum())
        return only(logits, ids[: max(n, self.min_keep)])

    def after_min_p(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Those at least min_p times as likely as the likeliest."""
        weights = softmax(logits)
        ids = ranking(logits)
        n = int((weights[ids] >= self.min_p * weights.max()).sum())
        return only(logits, ids[: max(n, self.min_keep)])

    def after_xtc(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """With probability 1 (anything less is the coin's business): all above the threshold go but the last."""
        ids = ranking(logits)
        n_above = int((softmax(logits)[ids] >= self.xtc_threshold).sum())
        is_on = self.xtc_probability > 0 and self.xtc_threshold <= 0.5 and n_above >= 2
        n_gone = n_above - 1 if is_on and len(ids) - (n_above - 1) >= self.min_keep else 0
        return only(logits, ids[n_gone:])

    def after_temperature(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Divided; by a temperature between the ends of its range, as the entropy lies between 0 and the most."""
        temperature, n = self.temperature, int((logits > -np.inf).sum())
        if self.dynatemp_range > 0:
            if n < 2:
                return logits
            weights = softmax(logits)
            entropy = -(weights[weights > 0] * np.log(weights[weights > 0])).sum() / np.log(n)
            low, high = max(0.0, temperature - self.dynatemp_range), temperature + self.dynatemp_range
            temperature = low + (high - low) * entropy**self.dynatemp_exponent
        return logits / temperature

    def mirostat_1(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Zipf's exponent from the 100 likeliest, and from it k."""
        ids = ranking(logits)[:100]
        if len(ids) < 2:
            return logits
        t = np.log((np.arange(len(ids) - 1) + 2) / (np.arange(len(ids) - 1) + 1))
        s = (t * -np.diff(logits[ids])).sum() / (t * t).sum()
        e = s - 1
        k = (e * 2**self.mirostat_mu / (1 - len(logits) ** -e)) ** (1 / s)
        return only(logits, ranking(logits)[: max(1, int(min(k, len(logits))))])

    def mirostat_2(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Those of at most mu bits, the best at least."""
        ids = ranking(logits)
        n = int((-np.log2(softmax(logits)[ids]) <= self.mirostat_mu).sum())
        return only(logits, ids[: max(n, 1)])


def last(tokens: Sequence[int], n: int) -> Sequence[int]:
    """The last n; all for -1."""
    return tokens if n < 0 else tokens[len(tokens) - min(n, len(tokens)) :]


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums to 1."""
    weights: NDArray[np.float64] = np.exp(logits - logits.max())
    return weights / weights.sum()


def ranking(logits: NDArray[np.float64]) -> NDArray[np.int64]:
    """The ids that are left, the best first."""
    ids = np.lexsort((np.arange(len(logits)), -logits))
    return ids[logits[ids] > -np.inf]


def only(logits: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """All others out."""
    kept = np.full(len(logits), -np.inf)
    kept[ids] = logits[ids]
    return kept
