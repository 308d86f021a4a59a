from __future__ import annotations

import pytest

from emel.bench.table import render_table


def test_table_aligns_words_left_and_figures_right() -> None:
    assert render_table(["test", "tok/s"], [["prefill 512", "1.5"], ["decode", "1234.5"]]) == (
        "test          tok/s\n-----------  ------\nprefill 512     1.5\ndecode       1234.5"
    )


def test_table_without_rows_is_its_header() -> None:
    assert render_table(["a", "b"], []) == "a  b\n-  -"


def test_table_leaves_no_blanks_at_line_ends() -> None:
    lines = render_table(["name", "note"], [["x", ""], ["y", "long"]], n_left=2).splitlines()
    assert all(line == line.rstrip() for line in lines)


def test_table_refuses_a_row_of_another_width() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells, the header has 2"):
        render_table(["a", "b"], [["x"]])
