"""Plain text tables: columns as wide as they must be, words to the left, figures to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """Lines joined by newlines, without one at the end; the first n_left columns are aligned to the left.

    ValueError when a row has another number of cells than the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row has {len(row)} cells, the header has {len(header)}: {list(row)}")
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]

    def render(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if column < n_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    return "\n".join([render(header), "  ".join("-" * width for width in widths), *map(render, rows)])
