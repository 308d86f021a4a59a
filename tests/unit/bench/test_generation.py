from __future__ import annotations

import io
from pathlib import Path

import pytest

from emel.bench import generation
from emel.bench.decode_roof import DecodeRoof
from emel.bench.generation import GenerationSuite, Plan
from emel.bench.progress import Progress
from emel.bench.protocol import LaneError
from emel.bench.report import Report
from emel.bench.workload import plan_workloads
from unit.bench.test_lane import fake_command


def run_suite(
    monkeypatch: pytest.MonkeyPatch,
    behaviours: dict[str, str],
    *,
    n_warmup: int = 1,
    decode_roof: DecodeRoof | None = None,
) -> tuple[Report, str]:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(generation, "lane_command", lambda engine, *_: fake_command(behaviours[engine]))
    plan = Plan(
        model=Path("a.gguf"),
        workloads=plan_workloads([20], 8, [0, 30], [3], cold_start=True),
        threads=(1, 2),
        n_runs=2,
        n_warmup=n_warmup,
        compare=len(behaviours) == 2,
        decode_roof=decode_roof,
    )
    report = Report({}, "a.gguf", 1, n_warmup, 2)
    terminal = Terminal()
    GenerationSuite(plan, report, Progress(terminal)).run()
    return report, terminal.getvalue()


def test_generation_measures_every_workload_at_every_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run_suite(monkeypatch, {"EMEL": "works", "llama.cpp": "works"})
    assert [(row.workload.name, row.n_threads) for row in report.rows] == [
        (name, n_threads)
        for n_threads in (1, 2)
        for name in (
            "prefill 20",
            "decode 8",
            "decode 8 at depth 30",
            "answer 3",
            "cold start",
            "cold start ready",
            "cold start peak",
        )
    ]
    for row in report.rows:
        assert list(row.summaries) == ["EMEL", "llama.cpp"]
        assert all(len(summary.samples) == 2 for summary in row.summaries.values())
    assert report.rows[0].summaries["EMEL"].median == pytest.approx(1000.0)
    assert report.rows[1].summaries["llama.cpp"].median == pytest.approx(100.0)
    assert report.rows[3].summaries["EMEL"].median == pytest.approx(0.016 + 0.02)


def test_generation_lets_the_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = run_suite(monkeypatch, {"EMEL": "works", "llama.cpp": "works"})
    turns = [line.rpartition(", ")[2] for line in shown.split("\r\x1b[K") if line.startswith("prefill 20, 1 thread,")]
    assert turns == [f"{engine}: {turn}/3" for turn in (1, 2, 3) for engine in ("EMEL", "llama.cpp")]


def test_generation_holds_decoding_to_what_the_machine_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(_roof: DecodeRoof, n_threads: int) -> float:
        measured.append(n_threads)
        return 20.0

    monkeypatch.setattr(DecodeRoof, "measure", measure)
    report, _ = run_suite(monkeypatch, {"EMEL": "works", "llama.cpp": "works"}, decode_roof=DecodeRoof(50_000_000))
    shares = [(row.workload.kind, row.read_roof, row.share_of_read) for row in report.rows[:4]]
    share = pytest.approx(100 * 0.05 / 20)  # 100 tokens/s of 50 MB
    assert shares == [("prefill", None, None), *[("decode", 20.0, share)] * 2, ("answer", None, None)]
    assert measured == [1] * 6 + [2] * 6  # once a turn, warm-up too
    assert all(list(row.summaries) == ["EMEL", "llama.cpp"] for row in report.rows)


def test_generation_alone_has_one_engine_and_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = run_suite(monkeypatch, {"EMEL": "works"}, n_warmup=0)
    assert list(report.engines) == ["EMEL"]
    assert all(row.ratio is None for row in report.rows)


def test_generation_ends_with_the_engine_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaneError, match=r"^llama.cpp: RuntimeError: the seventh layer"):
        run_suite(monkeypatch, {"EMEL": "works", "llama.cpp": "fails"})


def test_plan_context_fits_the_longest_workload(tmp_path: Path) -> None:
    plan = Plan(
        tmp_path / "a.gguf", plan_workloads([512], 128, [0, 1024], [], cold_start=True), (1,), 1, 0, compare=True
    )
    assert [command[5] for command in plan.commands(1).values()] == ["1152", "1152"]


def test_plan_tells_emel_alone_what_activations_to_take(tmp_path: Path) -> None:
    workloads = plan_workloads([512], 1, [0], [], cold_start=False)
    plan = Plan(tmp_path / "a.gguf", workloads, (1,), 1, 0, compare=True, activations="int8")
    assert [command[6:] for command in plan.commands(1).values()] == [["int8"], []]
