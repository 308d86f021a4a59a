"""What is said about a handful of repeated measurements: the median, and how far apart they lie."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Summary:
    """Samples of one quantity, in the order they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample, or the mean of the two middle ones."""
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        """The smallest sample."""
        return min(self.samples)

    @property
    def high(self) -> float:
        """The largest sample."""
        return max(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the extremes, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


def summarize(samples: Sequence[float]) -> Summary:
    """A summary of at least one positive, finite sample; ValueError otherwise."""
    if not samples:
        raise ValueError("there is no sample to summarise")
    if not all(0 < sample < float("inf") for sample in samples):
        raise ValueError(f"samples must be positive and finite, these are {list(samples)}")
    return Summary(tuple(samples))
