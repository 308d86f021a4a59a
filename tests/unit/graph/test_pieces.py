"""The output matrix in pieces: the graph keeps its rules, and bad pieces break them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emel.graph.errors import GraphError
from emel.graph.fuse import fuse
from emel.graph.ops import Argmax, Linear
from emel.graph.pieces import Piece, cut_logits, output_linear, pieces_of
from emel.graph.spec import PLAN_RULES, RULES, violations
from unit.graph.tiny import Tiny


@pytest.mark.parametrize("is_tied", [True, False])
def test_cut_graph_keeps_every_rule(is_tied: bool) -> None:
    graph = Tiny(is_tied=is_tied).build()
    cut = cut_logits(graph, 16)
    assert violations(cut, RULES) == []
    assert violations(fuse(cut), PLAN_RULES) == []
    pieces = [each for each in cut.operations if isinstance(each, Linear) and each.first_logit is not None]
    assert [(each.first_logit, each.parts[0].weight.rows) for each in pieces] == [(0, 16), (16, 16), (32, 16), (48, 2)]
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
    second = next(each for each in operations if isinstance(each, Linear) and each.first_logit == 16)
    operations[operations.index(second)] = replace(second, first_logit=32)
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
