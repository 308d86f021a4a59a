"""Graphs cut inside their layers keep their rules and every operation, but for products that are no longer joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.cuts import cut_before
from emel.graph.fuse import fuse
from emel.graph.ops import Embed, Linear
from emel.graph.spec import PLAN_RULES, RULES, violations
from model.described import describe_tiny
from model.every_model import EVERY_MODEL
from unit.graph.tiny import Tiny

if TYPE_CHECKING:
    from pathlib import Path

    from emel.graph.ops import Graph


def segments_of(graph: Graph) -> dict[str, int]:
    return {
        weight.name: operation.segment
        for operation in graph.operations
        if not isinstance(operation, Embed)
        for weight in operation.weights()
    }


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_matrix_may_begin_a_segment(name: str, tmp_path: Path) -> None:
    graph, _ = describe_tiny(tmp_path / "model.gguf", name)
    names = [each.name for each in graph.weights if each.is_packed]
    cut = cut_before(graph, names)
    assert violations(cut, RULES) == []
    assert violations(fuse(cut), PLAN_RULES) == []
    assert len(cut.operations) == len(graph.operations)
    linears = [each.segment for each in fuse(cut).operations if isinstance(each, Linear)]
    assert len(set(linears)) == len(linears)


def test_only_the_weights_that_are_named_begin_segments(tmp_path: Path) -> None:
    graph, _ = describe_tiny(tmp_path / "model.gguf", "llama")
    before, after = segments_of(graph), segments_of(cut_before(graph, ["blk.1.ffn_up.weight", "blk.1.ffn_down.weight"]))
    assert after["blk.1.ffn_gate.weight"] == before["blk.1.ffn_gate.weight"]
    assert after["blk.1.ffn_up.weight"] == before["blk.1.ffn_up.weight"] + 1
    assert after["blk.1.ffn_down.weight"] == before["blk.1.ffn_down.weight"] + 2
    assert after["blk.2.attn_q.weight"] == before["blk.2.attn_q.weight"] + 2


def test_a_graph_without_the_weights_stays_what_it_is() -> None:
    graph = Tiny().build()
    assert cut_before(graph, ["none"]) is graph
