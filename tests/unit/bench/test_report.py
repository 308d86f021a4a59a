from __future__ import annotations

import json

from emel.bench.protocol import Ready
from emel.bench.report import Report, Row, render_text, to_json
from emel.bench.statistics import summarize
from emel.bench.workload import Workload


def sample_report(*, compare: bool) -> Report:
    machine: dict[str, str | int] = {"cpu": "A CPU", "cpus": 2, "system": "Linux 6 x86_64", "python": "3.11.7"}
    report = Report(machine, "tiny.gguf", 98_362_432, 1, 3)
    report.engines["EMEL"] = Ready("EMEL", "0.1.0", "avx2", 320)
    ours = {"EMEL": summarize([1000.0, 990.0, 1010.0])}
    cold = {"EMEL": summarize([0.2])}
    if compare:
        report.engines["llama.cpp"] = Ready("llama.cpp", "llama-cpp-python 0.3", "AVX2", 320)
        ours["llama.cpp"] = summarize([250.0])
        cold["llama.cpp"] = summarize([0.3])
    report.rows.append(Row(Workload("prefill", 512, 0), 2, ours))
    report.rows.append(Row(Workload("cold start", 16, 0), 2, cold))
    return report


def test_row_ratio_above_one_means_emel_is_better_for_rates_times_and_sizes() -> None:
    report = sample_report(compare=True)
    sizes = {"EMEL": summarize([150.0]), "llama.cpp": summarize([175.0])}
    report.rows.append(Row(Workload("cold start peak", 16, 0), 2, sizes))
    assert [row.ratio for row in report.rows] == [4.0, 0.3 / 0.2, 175.0 / 150.0]


def test_report_text_has_the_machine_the_engines_and_a_line_per_row() -> None:
    assert render_text(sample_report(compare=True)) == (
        "machine  A CPU, 2 CPUs, Linux 6 x86_64, Python 3.11.7\n"
        "model    tiny.gguf (98 MB)\n"
        "engine   EMEL: 0.1.0; avx2\n"
        "engine   llama.cpp: llama-cpp-python 0.3; AVX2\n"
        "runs     median of 3 after 1 to warm up; ± is half the range of all runs\n"
        "\n"
        "test         threads      unit    EMEL     ±  llama.cpp     ±  ratio\n"
        "-----------  -------  --------  ------  ----  ---------  ----  -----\n"
        "prefill 512        2  tokens/s  1000.0  1.0%      250.0  0.0%  4.00x\n"
        "cold start         2         s   0.200  0.0%      0.300  0.0%  1.50x\n"
    )


def test_report_text_of_emel_alone_has_no_ratio() -> None:
    text = render_text(sample_report(compare=False))
    assert "ratio" not in text
    assert text.splitlines()[-1] == "cold start         2         s   0.200  0.0%"


def test_report_text_has_the_share_of_the_read_roof_where_it_applies() -> None:
    report = sample_report(compare=True)
    report.rows.insert(1, Row(Workload("decode", 1, 128), 2, report.rows[0].summaries, 40.0, 0.876))
    lines = render_text(report).splitlines()
    assert lines[-5].endswith("ratio  of the read roof")
    assert [line[line.rindex("x") + 1 :].strip() for line in lines[-3:]] == ["", "88%", ""]
    decoded = to_json(report)["results"]
    assert [(row["read_roof"], row["share_of_read"]) for row in decoded] == [(None, None), (40.0, 0.876), (None, None)]


def test_report_json_has_every_sample() -> None:
    decoded = json.loads(json.dumps(to_json(sample_report(compare=True))))
    assert set(decoded) == {"suite", "machine", "model", "runs", "warmup", "engines", "results"}
    assert decoded["model"] == {"path": "tiny.gguf", "bytes": 98_362_432}
    first = decoded["results"][0]
    assert set(first) == {"test", "threads", "unit", "engines", "ratio", "read_roof", "share_of_read"}
    assert first["test"] == "prefill 512"
    assert first["engines"]["EMEL"] == {
        "median": 1000.0,
        "low": 990.0,
        "high": 1010.0,
        "samples": [1000.0, 990.0, 1010.0],
    }
    assert first["ratio"] == 4.0
    assert to_json(sample_report(compare=False))["results"][0]["ratio"] is None
