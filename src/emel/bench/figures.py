"""Results of the suites that measure kernels: one figure a row, as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any

from emel.bench.machine import describe_machine, emel_version, machine_line
from emel.bench.table import render_table
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.bench.statistics import Summary


@dataclass(frozen=True, slots=True)
class Column:
    """What a figure is set against: its heading, and a `format` pattern for it."""

    header: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Repeated measurements of one thing. `labels` say what (leading cells), `extras` what its median comes to."""

    labels: Mapping[str, str | int]
    unit: str
    summary: Summary
    extras: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(slots=True)
class FigureReport:
    """Everything one run of a suite found out; all figures have the same labels."""

    suite: str
    route: str
    n_warmup: int
    n_runs: int
    columns: Mapping[str, Column] = field(default_factory=dict)  # by the name of the extra
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    machine: Mapping[str, str | int] = field(default_factory=describe_machine)


def render_figures(report: FigureReport) -> str:
    """The header, the table and the notes, ending in a newline."""
    machine = report.machine
    header = (
        f"{machine_line(machine)}\n"
        f"emel     {emel_version()}, kernels for {report.route}\n"
        f"runs     median of {report.n_runs} after {report.n_warmup} to warm up; ± is half the range of all runs\n"
    )
    names = [*report.figures[0].labels, "unit", "median", "±"] + [column.header for column in report.columns.values()]
    table = render_table(names, [_cells(figure, report.columns) for figure in report.figures])
    notes = "".join(f"\n{note}" for note in report.notes)
    return f"{header}\n{table}\n{notes}" + ("\n" if notes else "")


def _cells(figure: Figure, columns: Mapping[str, Column]) -> list[str]:
    cells = [*map(str, figure.labels.values()), figure.unit, f"{figure.summary.median:.1f}"]
    cells.append(f"{figure.summary.spread:.1%}")
    for name, column in columns.items():
        value = figure.extras.get(name)
        cells.append("" if value is None else column.pattern.format(value))
    return cells


def figures_to_json(report: FigureReport) -> dict[str, Any]:
    """The same as plain dictionaries and lists, with every sample; an extra that has no value is null."""
    return {
        "suite": report.suite,
        "machine": dict(report.machine),
        "emel": {"version": emel_version(), "route": report.route},
        "runs": report.n_runs,
        "warmup": report.n_warmup,
        "results": [
            {
                **figure.labels,
                "unit": figure.unit,
                "median": figure.summary.median,
                "low": figure.summary.low,
                "high": figure.summary.high,
                "samples": list(figure.summary.samples),
                **{name: figure.extras.get(name) for name in report.columns},
            }
            for figure in report.figures
        ],
    }


def print_figures(report: FigureReport, *, as_json: bool) -> None:
    """Writes the report to stdout."""
    sys.stdout.write(json.dumps(figures_to_json(report), indent=2) + "\n" if as_json else render_figures(report))
