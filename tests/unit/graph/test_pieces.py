"""Matrices in pieces: the graph keeps its rules, and bad pieces break them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emel.graph.errors import GraphError
from emel.graph.fuse import fuse
from emel.graph.liveness import storages
from emel.graph.ops import Argmax, Linear
from emel.graph.pieces import Piece, cut_logits, cut_rows, linears_to_cut, output_linear, pieces_of
from emel.graph.spec import PLAN_RULES, RULES, violations
from unit.graph.tiny import F16, Q8, Tiny


@pytest.mark.parametrize("is_tied", [True, False])
def test_cut_graph_keeps_every_rule(is_tied: bool) -> None:
    graph = Tiny(is_tied=is_tied).build()
    cut = cut_logits(graph, 16)
    assert violations(cut, RULES) == []
    assert violations(fuse(cut), PLAN_RULES) == []
    pieces = [each for each in cut.operations if isinstance(each, Linear) and each.begin is not None]
    assert [(each.begin, each.parts[0].weight.rows) for each in pieces] == [(0, 16), (16, 16), (32, 16), (48, 2)]
    assert len({each.segment for each in pieces}) == 4
    assert cut.output_width == graph.n_vocab == 50
    assert len(cut.weights) == len(graph.weights) + (4 if is_tied else 3)


def test_pieces_cover_the_rows_in_order() -> None:
    assert pieces_of("m", 40, 16) == (Piece("m[0]", 0, 16), Piece("m[16]", 16, 16), Piece("m[32]", 32, 8))


@pytest.mark.parametrize("n_rows", [0, -16, 8, 24])
def test_pieces_are_whole_row_groups(n_rows: int) -> None:
    with pytest.raises(GraphError, match=f"^pieces of {n_rows} rows: a multiple of 16 is needed$"):
        pieces_of("m", 100, n_rows)


def test_a_graph_without_one_output_matrix_cannot_be_cut() -> None:
    graph = Tiny().build()
    cut = cut_logits(graph, 16)
    assert output_linear(cut) is None
    with pytest.raises(GraphError, match=r"^the graph ends in no matrix that could be cut$"):
        cut_logits(cut, 16)


def test_pieces_out_of_order_break_the_rule() -> None:
    cut = cut_logits(Tiny().build(), 16)
    operations = list(cut.operations)
    second = next(each for each in operations if isinstance(each, Linear) and each.begin == 16)
    operations[operations.index(second)] = replace(second, begin=32)
    (found,) = violations(replace(cut, operations=tuple(operations)), RULES)
    assert found.fault == "a piece of the logits does not begin at 16, where the one before it ends"


def test_an_argmax_of_some_pieces_breaks_the_rule() -> None:
    cut = cut_logits(Tiny().build(), 16)
    operations = [
        replace(each, pieces=each.pieces[1:]) if isinstance(each, Argmax) else each for each in cut.operations
    ]
    assert "the pieces are 50 logits of 50, and one argmax reads all of them" in [
        each.fault for each in violations(replace(cut, operations=tuple(operations)), RULES)
    ]


def test_rows_are_cut_into_pieces_that_make_one_value() -> None:
    graph = Tiny(types=(Q8, F16) * 4).build()
    names = linears_to_cut(graph)
    assert "0.up" in names
    cut = cut_rows(graph, dict.fromkeys(names, 16))
    assert violations(cut, RULES) == []
    assert violations(fuse(cut), PLAN_RULES) == []
    whole = names["0.up"].parts[0]
    pieces = [each for each in cut.operations if isinstance(each, Linear) and each.parts[0].weight.name[:5] == "0.up["]
    assert [(each.begin, each.parts[0].weight.rows) for each in pieces] == [(begin, 16) for begin in range(0, 96, 16)]
    assert [each.onto for each in pieces] == [None, *(each.parts[0].out for each in pieces[:-1])]
    assert pieces[-1].parts[0].out == whole.out
    assert {each.parts[0].out.width for each in pieces} == {whole.out.width}
    assert cut.n_segments == graph.n_segments


def test_pieces_share_the_storage_of_their_value() -> None:
    cut = fuse(cut_rows(Tiny().build(), {"0.up": 32}))
    values = [each.parts[0].out for each in cut.operations if isinstance(each, Linear) and each.begin is not None]
    assert len(values) == 3
    assert len({storages(cut)[value.index] for value in values}) == 1


def test_what_has_a_bias_or_is_read_twice_or_ends_in_logits_is_not_cut() -> None:
    graph = Tiny(has_bias=True, is_tied=False).build()
    biased = {p.weight.name for o in graph.operations if isinstance(o, Linear) for p in o.parts if p.bias is not None}
    assert biased
    assert biased.isdisjoint(linears_to_cut(graph))
    output = output_linear(graph)
    assert output is not None
    assert output.parts[0].weight.name not in linears_to_cut(graph)
    with pytest.raises(KeyError):
        cut_rows(graph, {sorted(biased)[0]: 16})
