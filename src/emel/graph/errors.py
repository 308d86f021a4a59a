"""What the graph package raises."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph, a plan or a request that cannot be run; the text says what was seen and what is allowed."""
