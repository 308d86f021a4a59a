from __future__ import annotations

import importlib.util
import json
import sys
from typing import TYPE_CHECKING

import pytest

from emel.bench import generation
from emel.bench.main import main
from unit.bench.test_lane import fake_command

if TYPE_CHECKING:
    from pathlib import Path

    from emel.bench.report import Report

QUICK = [
    "generation",
    "--runs",
    "1",
    "--warmup",
    "0",
    "--prefill",
    "8",
    "--decode",
    "4",
    "--depth",
    "0",
    "--answer",
    "2",
    "-t",
    "1",
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def fake_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "lane_command", lambda *_: fake_command("works"))


def pretend_missing(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))


@pytest.mark.usefixtures("fake_engines")
def test_bench_prints_a_table_on_stdout_and_nothing_on_a_piped_stderr(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, "-m", str(model)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[1] == "model    tiny.gguf (0 MB)"
    assert [line.split("  ")[0] for line in lines[-6:]] == [
        "prefill 8",
        "decode 4",
        "answer 2",
        "cold start",
        "cold start ready",
        "cold start peak",
    ]
    assert printed.err == ""


@pytest.mark.usefixtures("fake_engines")
def test_bench_json_is_one_object(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "-m", str(model), "--json", "--no-cold-start"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [result["test"] for result in report["results"]] == ["prefill 8", "decode 4", "answer 2"]
    assert report["results"][0]["engines"]["EMEL"]["median"] == pytest.approx(1000.0)
    assert report["runs"] == 1


def test_bench_compare_without_llama_cpp_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_missing(monkeypatch, "llama_cpp")
    assert main([*QUICK, "-m", str(model), "--compare"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "emel: error: --compare needs llama-cpp-python, which is not installed",
        "hint: install it with: pip install 'emel[bench]' (llama-cpp-python is compiled, which takes some minutes)",
    ]


def test_bench_plot_without_matplotlib_says_so_before_it_measures(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_missing(monkeypatch, "matplotlib")
    monkeypatch.setattr(generation.GenerationSuite, "run", lambda _: pytest.fail("it measured"))
    assert main([*QUICK, "-m", str(model), "--plot", str(model.with_suffix(".png"))]) == 1
    assert "--plot needs matplotlib, which is not installed" in capsys.readouterr().err


def test_bench_plot_into_a_missing_folder_says_so_before_it_measures(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(generation.GenerationSuite, "run", lambda _: pytest.fail("it measured"))
    assert main([*QUICK, "-m", str(model), "--plot", str(model.parent / "no" / "a.png")]) == 1
    assert "--plot: there is no folder" in capsys.readouterr().err


def test_bench_of_a_model_that_is_not_there_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "-m", "nowhere/a.gguf"]) == 1
    assert "nowhere/a.gguf" in capsys.readouterr().err


def test_bench_of_a_failing_engine_names_it(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generation, "lane_command", lambda *_: fake_command("fails-to-load"))
    assert main([*QUICK, "-m", str(model)]) == 1
    assert capsys.readouterr().err == "emel: error: EMEL: ValueError: no such model\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["speed"], "invalid choice: 'speed'"),
        (["generation", "-t", "0"], "argument -t/--threads: 0 is below 1"),
        (["generation", "-t", "1,two"], "argument -t/--threads: 'two' is not a whole number"),
        (["generation", "--depth", "-1"], "argument --depth: -1 is below 0"),
        (["generation", "--runs", "0"], "argument --runs: 0 is below 1"),
        (["generation", "--warmup", "1.5"], "argument --warmup: '1.5' is not a whole number"),
    ],
)
def test_bench_usage_errors_name_the_option(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(options)
    assert end.value.code == 2
    assert text in capsys.readouterr().err


def test_bench_threads_default_to_one_and_all(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from emel.bench import machine

    monkeypatch.setattr(machine, "n_cpus", lambda: 6)
    seen: list[tuple[int, ...]] = []
    monkeypatch.setattr(generation.GenerationSuite, "run", lambda suite: seen.append(tuple(suite._plan.threads)))
    assert main(["generation", "-m", str(model)]) == 0
    assert seen == [(1, 6)]


def test_bench_module_imports_no_numpy() -> None:
    """The command line reads the options of every suite at start."""
    import subprocess

    code = (
        "import argparse, sys, emel.bench.command as c; c.configure(argparse.ArgumentParser());"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'matplotlib', 'llama_cpp', 'emel._native')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bench_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    from emel.bench.plot import save_plot
    from unit.bench.test_report import sample_report

    report: Report = sample_report(compare=True)
    save_plot(report, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
