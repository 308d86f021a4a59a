"""The kernels suite's results as a picture: a panel for each number of tokens and threads, a bar for each format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from emel.bench.figures import Figure, FigureReport


def save_kernel_plot(report: FigureReport, path: Path) -> None:
    """Writes the picture; its format follows the file name. ValueError for a format matplotlib does not write."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    panels = _panels(report.figures)
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 0.6 + 2.4 * len(panels)), squeeze=False)
    try:
        for axis, (title, figures) in zip(axes[:, 0], panels.items(), strict=True):
            medians = [each.summary.median for each in figures]
            below = [each.summary.median - each.summary.low for each in figures]
            above = [each.summary.high - each.summary.median for each in figures]
            bars = axis.bar(range(len(figures)), medians, yerr=[below, above], capsize=2)
            axis.bar_label(bars, [_share(each) for each in figures], fontsize=7, padding=2)
            axis.set_xticks(range(len(figures)), [str(each.labels["format"]) for each in figures], fontsize=7)
            axis.set_title(title, fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{report.machine['cpu']}, {report.route}: G multiply-adds/s, share of the roof", fontsize=9)
        figure.tight_layout()
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)


def _panels(figures: list[Figure]) -> dict[str, list[Figure]]:
    panels: dict[str, list[Figure]] = {}
    for each in figures:
        title = f"tokens: {each.labels['tokens']}, threads: {each.labels['threads']}"
        panels.setdefault(title, []).append(each)
    return panels


def _share(figure: Figure) -> str:
    """The share of the roof that holds the figure back."""
    for name in ("share_of_read", "share_of_two_plane", "share_of_int8", "share_of_fma"):
        share = figure.extras.get(name)
        if share is not None:
            return f"{share:.0%}"
    return ""
