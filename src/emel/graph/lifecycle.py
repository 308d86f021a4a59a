"""Whether the tensors of a run may be read and written: a gate in front of every kernel run.

Leaves (weights, the KV cache) are filled once and stay so. A run publishes its results, which must be empty before it
and are released after they were extracted: a result nobody has taken is never overwritten silently.
"""

from __future__ import annotations

from enum import Enum

from emel.graph.errors import GraphError


class TensorState(Enum):
    """What a tensor holds."""

    EMPTY = "empty"
    FILLED = "filled"
    LEAF_FILLED = "leaf filled"


class Lifecycle:
    """The states of the leaves a plan requires and the results it publishes."""

    __slots__ = ("_leaves", "_n_empty_leaves", "_result_state", "_results")

    def __init__(self, leaves: tuple[str, ...] = (), results: tuple[str, ...] = ("logits", "argmax")) -> None:
        self._leaves = dict.fromkeys(leaves, TensorState.EMPTY)
        self._n_empty_leaves = len(self._leaves)
        self._results = results
        self._result_state = TensorState.EMPTY

    def state_of(self, name: str) -> TensorState:
        """The state of a leaf or result; KeyError for another name."""
        return self._result_state if name in self._results else self._leaves[name]

    def fill_leaf(self, name: str) -> None:
        """A leaf got its values; GraphError for an unknown or filled one."""
        if self._leaves.get(name) is not TensorState.EMPTY:
            raise GraphError(f"leaf {name!r} is {'filled already' if name in self._leaves else 'unknown'}")
        self._leaves[name] = TensorState.LEAF_FILLED
        self._n_empty_leaves -= 1

    def can_run(self) -> bool:
        """Every leaf is filled and every result empty."""
        return not self._n_empty_leaves and self._result_state is TensorState.EMPTY

    def why_not(self) -> str:
        """What keeps a run from starting, in words; empty when nothing does."""
        empty = [name for name, state in self._leaves.items() if state is TensorState.EMPTY]
        if empty:
            return f"{', '.join(empty)} has not been filled"
        if self._result_state is TensorState.FILLED:
            return f"{', '.join(self._results)} of the last run were not released"
        return ""

    def publish(self) -> None:
        """The results are filled; GraphError when they were not empty."""
        if self._result_state is not TensorState.EMPTY:
            raise GraphError(f"{', '.join(self._results)} are published twice")
        self._result_state = TensorState.FILLED

    def release(self) -> None:
        """The results were taken, or never made."""
        self._result_state = TensorState.EMPTY
