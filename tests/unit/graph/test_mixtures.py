"""Graphs cut behind their routers keep their rules and what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.graph.expert_ops import ExpertLinear, TopK
from emel.graph.fuse import fuse
from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.spec import PLAN_RULES, RULES, violations
from model.described import describe_tiny
from unit.graph.tiny import Tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["qwen2moe", "lfm2moe", "gpt-oss"])
def test_no_segment_chooses_the_experts_it_computes(name: str, tmp_path: Path) -> None:
    graph, _ = describe_tiny(tmp_path / "model.gguf", name)
    cut = cut_behind_routers(graph)
    assert violations(cut, RULES) == []
    fused = fuse(cut)
    assert violations(fused, PLAN_RULES) == []
    chosen_in = {each.routing: each.segment for each in fused.operations if isinstance(each, TopK)}
    used_in = {each.routing: each.segment for each in fused.operations if isinstance(each, ExpertLinear)}
    assert chosen_in
    assert used_in == {routing: segment + 1 for routing, segment in chosen_in.items()}
    assert cut.n_segments == graph.n_segments + len(chosen_in)
    assert len(fused.operations) == len(fuse(graph).operations)


def test_a_mixture_knows_its_matrices_and_choices(tmp_path: Path) -> None:
    graph, _ = describe_tiny(tmp_path / "model.gguf", "qwen2moe")
    mixtures = mixtures_of(graph.operations)
    assert len(mixtures) == 3
    assert [weight.name for weight in mixtures[1].weights] == [
        f"blk.1.ffn_{name}_exps.weight" for name in ("gate", "up", "down")
    ]
    assert (mixtures[1].n_experts, mixtures[1].n_used) == (8, 3)


def test_a_graph_without_mixtures_stays_what_it_is() -> None:
    graph = Tiny().build()
    assert cut_behind_routers(graph) is graph
    assert mixtures_of(graph.operations) == ()
