"""Every matrix has one role, and units are small, once what is larger is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from emel.graph.mixtures import cut_behind_routers, mixtures_of
from emel.graph.pieces import linears_to_cut
from emel.model.extents import extents_of
from emel.model.matrix_roles import memory_of, piece_rows, roles_of
from emel.model.residency import cut_extent
from model.described import describe_tiny
from model.every_model import EVERY_MODEL

if TYPE_CHECKING:
    from pathlib import Path

    from emel.graph.ops import Graph
    from emel.tensor.window_layout import Extent


def graph_of(path: Path, name: str) -> tuple[Graph, dict[str, Extent]]:
    graph, description = describe_tiny(path, name)
    return cut_behind_routers(graph), extents_of(description)


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_matrix_has_one_role(name: str, tmp_path: Path) -> None:
    graph, extents = graph_of(tmp_path / "model.gguf", name)
    roles = roles_of(graph, extents, ())
    streamed = [name for names in roles.units for name in names]
    alone = [each for each in (roles.embedding, roles.output) if each is not None]
    experts = [weight.name for mixture in mixtures_of(graph.operations) for weight in mixture.weights]
    # An embedding that is the output as well is one matrix with both roles.
    assert sorted([*streamed, *dict.fromkeys(alone), *roles.shared, *experts]) == sorted(extents)


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_units_are_neighbours_or_can_be_cut(name: str, tmp_path: Path) -> None:
    graph, extents = graph_of(tmp_path / "model.gguf", name)
    segments = {weight.name: each.segment for each in graph.operations for weight in each.weights()}
    roles = roles_of(graph, extents, ())
    units, most = roles.units, roles.unit_bytes
    larger = [names for names in units if memory_of(names, extents) > most]
    can_cut = linears_to_cut(graph)
    assert all(len(names) == 1 and names[0] in can_cut for names in larger)
    for (matrix,) in larger:
        pieces = cut_extent(extents[matrix], piece_rows(extents[matrix], most))
        assert len(pieces) > 1
        assert all(piece.packed_bytes <= most for piece in pieces)
    assert all(len({segments[name] for name in names}) == 1 for names in units)
    for names, following in pairwise(units):
        if segments[names[0]] == segments[following[0]]:
            assert memory_of([*names, following[0]], extents) > most


def test_units_are_larger_where_there_would_be_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, extents = graph_of(tmp_path / "model.gguf", "llama")
    before = roles_of(graph, extents, ()).units
    monkeypatch.setattr("emel.model.matrix_roles.MOST_UNITS", 1)
    units = roles_of(graph, extents, ()).units
    assert len(units) < len(before)
    assert [name for names in units for name in names] == [name for names in before for name in names]


def test_what_is_pinned_is_in_no_unit(tmp_path: Path) -> None:
    graph, extents = graph_of(tmp_path / "model.gguf", "llama")
    roles = roles_of(graph, extents, ["blk.1.ffn_up.weight"])
    assert "blk.1.ffn_up.weight" in roles.shared
    assert all("blk.1.ffn_up.weight" not in names for names in roles.units)
