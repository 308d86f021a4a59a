"""The generation suite's results: as a table for people, as a JSON object for programs."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from emel.bench.machine import machine_line
from emel.bench.table import render_table
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from emel.bench.protocol import Ready
    from emel.bench.statistics import Summary
    from emel.bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Row:
    """One workload at one thread count: a summary for each engine, EMEL's first.

    `read_roof` is what the machine reads, in GB/s, and `share_of_read` what EMEL's reading of the weights is of it.
    """

    workload: Workload
    n_threads: int
    summaries: dict[str, Summary]
    read_roof: float | None = None
    share_of_read: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times faster (of MB: smaller) EMEL is than the other engine, by the medians; None when alone."""
        if len(self.summaries) != 2:
            return None
        ours, theirs = (summary.median for summary in self.summaries.values())
        return ours / theirs if self.workload.unit == "tokens/s" else theirs / ours


@dataclass(slots=True)
class Report:
    """Everything one run of the suite found out."""

    machine: dict[str, str | int]
    model: str
    n_model_bytes: int
    n_warmup: int
    n_runs: int
    engines: dict[str, Ready] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def render_text(report: Report) -> str:
    """The header and the table, ending in a newline."""
    machine = report.machine
    lines = [
        machine_line(machine),
        f"model    {report.model} ({report.n_model_bytes / 1e6:.0f} MB)",
        *(f"engine   {ready.engine}: {ready.version}; {ready.route}" for ready in report.engines.values()),
        f"runs     median of {report.n_runs} after {report.n_warmup} to warm up; ± is half the range of all runs",
    ]
    names = list(report.engines)
    header = ["test", "threads", "unit"]
    for name in names:
        header += [name, "±"]
    if len(names) == 2:
        header.append("ratio")
    has_roof = any(row.share_of_read is not None for row in report.rows)
    if has_roof:
        header.append("of the read roof")
    cells = [_cells(row, names, has_roof=has_roof) for row in report.rows]
    return "\n".join(lines) + "\n\n" + render_table(header, cells) + "\n"


def _cells(row: Row, names: list[str], *, has_roof: bool) -> list[str]:
    cells = [row.workload.name, str(row.n_threads), row.workload.unit]
    for name in names:
        summary = row.summaries[name]
        digits = 3 if row.workload.unit == "s" else 1
        cells += [f"{summary.median:.{digits}f}", f"{summary.spread:.1%}"]
    if row.ratio is not None:
        cells.append(f"{row.ratio:.2f}x")
    if has_roof:
        cells.append("" if row.share_of_read is None else f"{row.share_of_read:.0%}")
    return cells


def to_json(report: Report) -> dict[str, Any]:
    """The same as plain dictionaries and lists, with every sample."""
    return {
        "suite": "generation",
        "machine": report.machine,
        "model": {"path": report.model, "bytes": report.n_model_bytes},
        "runs": report.n_runs,
        "warmup": report.n_warmup,
        "engines": {name: asdict(ready) for name, ready in report.engines.items()},
        "results": [
            {
                "test": row.workload.name,
                "threads": row.n_threads,
                "unit": row.workload.unit,
                "engines": {
                    name: {
                        "median": summary.median,
                        "low": summary.low,
                        "high": summary.high,
                        "samples": list(summary.samples),
                    }
                    for name, summary in row.summaries.items()
                },
                "ratio": row.ratio,
                "read_roof": row.read_roof,
                "share_of_read": row.share_of_read,
            }
            for row in report.rows
        ],
    }
