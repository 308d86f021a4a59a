from __future__ import annotations

import json

from emel.bench.figures import Column, Figure, FigureReport, figures_to_json, render_figures
from emel.bench.machine import emel_version
from emel.bench.statistics import summarize

MACHINE: dict[str, str | int] = {"cpu": "A CPU", "cpus": 2, "system": "Linux 6 x86_64", "python": "3.11.7"}


def sample_report() -> FigureReport:
    columns = {"share": Column("of the roof", "{:.0%}"), "ratio": Column("ratio", "{:.2f}x")}
    report = FigureReport("kernels", "avx2", 1, 3, columns, ["a note", "in two lines"], machine=MACHINE)
    figures: tuple[tuple[list[float], dict[str, float | None]], ...] = (
        ([98.0, 100.0, 102.0], {"share": 0.8}),
        ([5.0], {"ratio": 1.5, "share": None}),
    )
    for tokens, (samples, extras) in enumerate(figures, 1):
        report.figures.append(Figure({"format": "Q4_0", "tokens": tokens}, "G/s", summarize(samples), extras))
    return report


def test_figures_text_has_the_machine_a_line_per_figure_and_blanks_for_what_is_not_there() -> None:
    assert render_figures(sample_report()) == (
        "machine  A CPU, 2 CPUs, Linux 6 x86_64, Python 3.11.7\n"
        f"emel     {emel_version()}, kernels for avx2\n"
        "runs     median of 3 after 1 to warm up; ± is half the range of all runs\n"
        "\n"
        "format  tokens  unit  median     ±  of the roof  ratio\n"
        "------  ------  ----  ------  ----  -----------  -----\n"
        "Q4_0         1   G/s   100.0  2.0%          80%\n"
        "Q4_0         2   G/s     5.0  0.0%               1.50x\n"
        "\n"
        "a note\n"
        "in two lines\n"
    )


def test_figures_text_without_notes_ends_with_the_table() -> None:
    report = sample_report()
    report.notes.clear()
    assert render_figures(report).endswith("1.50x\n")


def test_figures_json_has_every_sample_and_null_for_what_is_not_there() -> None:
    assert json.loads(json.dumps(figures_to_json(sample_report()))) == {
        "suite": "kernels",
        "machine": MACHINE,
        "emel": {"version": emel_version(), "route": "avx2"},
        "runs": 3,
        "warmup": 1,
        "results": [
            {
                "format": "Q4_0",
                "tokens": 1,
                "unit": "G/s",
                "median": 100.0,
                "low": 98.0,
                "high": 102.0,
                "samples": [98.0, 100.0, 102.0],
                "share": 0.8,
                "ratio": None,
            },
            {
                "format": "Q4_0",
                "tokens": 2,
                "unit": "G/s",
                "median": 5.0,
                "low": 5.0,
                "high": 5.0,
                "samples": [5.0],
                "share": None,
                "ratio": 1.5,
            },
        ],
    }
