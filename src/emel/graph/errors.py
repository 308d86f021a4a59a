"""What the graph package raises."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph, a plan or a request that cannot be run; the text says what was seen and what is allowed."""


class UnknownGraphError(GraphError):
    """A run ended in a way that nothing is written for, a defect; `__cause__` is what was raised, if anything was."""
