from __future__ import annotations

import pytest

from emel.graph.errors import GraphError
from emel.graph.lifecycle import Lifecycle


def test_lifecycle_runs_only_with_empty_results() -> None:
    lifecycle = Lifecycle()
    assert not lifecycle.is_filled
    lifecycle.publish()
    assert lifecycle.is_filled
    lifecycle.release()
    assert not lifecycle.is_filled


def test_lifecycle_refuses_to_publish_twice() -> None:
    lifecycle = Lifecycle()
    lifecycle.publish()
    with pytest.raises(GraphError, match="the results of a run are published twice"):
        lifecycle.publish()
    assert lifecycle.is_filled


def test_lifecycle_release_without_results_is_harmless() -> None:
    lifecycle = Lifecycle()
    lifecycle.release()
    assert not lifecycle.is_filled
