"""The generation suite's results as a picture: a panel per unit, a group of bars per test, a bar per engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from emel.bench.report import Report, Row


def save_plot(report: Report, path: Path) -> None:
    """Writes the picture; its format follows the file name. ValueError for a format matplotlib does not write."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    panels = _panels(report.rows)
    figure, axes = plt.subplots(1, len(panels), figsize=(1.5 + 4.5 * len(panels), 4.5), squeeze=False)
    try:
        for axis, (title, rows) in zip(axes[0], panels.items(), strict=True):
            _draw(axis, title, rows)
        axes[0][0].legend(frameon=False)
        figure.suptitle(f"{report.machine['cpu']}, {report.model}", fontsize=9)
        figure.tight_layout()
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)


def _panels(rows: list[Row]) -> dict[str, list[Row]]:
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(f"{row.workload.kind} ({row.workload.unit})", []).append(row)
    return panels


def _draw(axis: Any, title: str, rows: list[Row]) -> None:
    names = list(rows[0].summaries)
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        places = [group - 0.4 + (index + 0.5) * width for group in range(len(rows))]
        summaries = [row.summaries[name] for row in rows]
        medians = [summary.median for summary in summaries]
        below = [summary.median - summary.low for summary in summaries]
        above = [summary.high - summary.median for summary in summaries]
        axis.bar(places, medians, width, yerr=[below, above], label=name, capsize=2)
    axis.set_title(title, fontsize=10)
    labels = [f"{row.workload.name}\nthreads: {row.n_threads}" for row in rows]
    axis.set_xticks(range(len(rows)), labels, fontsize=7)
    axis.spines[["top", "right"]].set_visible(False)
