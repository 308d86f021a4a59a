from __future__ import annotations

import pytest

from emel.graph.errors import GraphError
from emel.graph.lifecycle import Lifecycle, TensorState


def test_lifecycle_runs_only_with_filled_leaves_and_empty_results() -> None:
    lifecycle = Lifecycle(leaves=("weights", "cache"), results=("logits",))
    lifecycle.fill_leaf("weights")
    assert not lifecycle.can_run()
    assert lifecycle.why_not() == "cache has not been filled"
    lifecycle.fill_leaf("cache")
    assert lifecycle.can_run()
    assert lifecycle.why_not() == ""
    lifecycle.publish()
    assert not lifecycle.can_run()
    assert lifecycle.why_not() == "logits of the last run were not released"
    assert lifecycle.state_of("logits") is TensorState.FILLED
    lifecycle.release()
    assert lifecycle.can_run()
    assert lifecycle.state_of("cache") is TensorState.LEAF_FILLED


def test_lifecycle_refuses_what_is_out_of_order() -> None:
    lifecycle = Lifecycle(leaves=("weights",))
    lifecycle.fill_leaf("weights")
    with pytest.raises(GraphError, match="leaf 'weights' is filled already"):
        lifecycle.fill_leaf("weights")
    with pytest.raises(GraphError, match="leaf 'other' is unknown"):
        lifecycle.fill_leaf("other")
    lifecycle.publish()
    with pytest.raises(GraphError, match="logits, argmax are published twice"):
        lifecycle.publish()
    with pytest.raises(KeyError):
        lifecycle.state_of("other")


def test_lifecycle_release_without_results_is_harmless() -> None:
    lifecycle = Lifecycle()
    lifecycle.release()
    assert lifecycle.can_run()
