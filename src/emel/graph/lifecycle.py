"""Whether a run may start: a gate in front of every kernel run.

A run publishes its results, which must be empty before it and are released after they were extracted: a result nobody
has taken is never overwritten silently. What a run reads (weights, the KV cache) is filled before its plan is made.
"""

from __future__ import annotations

from emel.graph.errors import GraphError


class Lifecycle:
    """Whether the results of a run (logits, argmax) are there and not yet taken: no run may start while they are."""

    __slots__ = ("is_filled",)

    def __init__(self) -> None:
        self.is_filled = False
        """Read in place of a call, as guards ask before every run; `publish` and `release` set it."""

    def publish(self) -> None:
        """The results are filled; GraphError when they were not empty."""
        if self.is_filled:
            raise GraphError("the results of a run are published twice")
        self.is_filled = True

    def release(self) -> None:
        """The results were taken, or never made."""
        self.is_filled = False
