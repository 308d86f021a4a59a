"""The suites roofline, kernels and parallel_matmul at sizes of nothing: what they say, not how fast it is."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest

from emel.bench import generation, kernels, parallel_matmul, roofline
from emel.bench.main import main
from emel.bench.matmul import Product
from emel.kernel.features import available_routes
from emel.kernel.packing import PACKABLE
from emel.kernel.roofline import Roof
from unit.bench.test_lane import fake_command

if TYPE_CHECKING:
    from pathlib import Path

BEST = list(available_routes())[-1]
QUICK = ["--runs", "2", "--warmup", "1", "-t", "1,2"]
SMALL = ["kernels", "--runs", "1", "--warmup", "0", "-t", "1", "--megabytes", "1", "--cols", "256"]
STATISTICS = {"unit", "median", "low", "high", "samples"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMEL_ISA", raising=False)
    monkeypatch.setattr(roofline, "SECONDS", 1e-3)
    monkeypatch.setattr(kernels, "SAMPLE_SECONDS", 1e-4)
    monkeypatch.setattr(parallel_matmul, "SAMPLE_SECONDS", 1e-4)


def report_of(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*options, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    report: dict[str, Any] = json.loads(printed.out)
    return report


def test_roofline_json_has_every_roof_at_every_thread_count(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, "roofline", *QUICK, "--megabytes", "1")
    assert set(report) == {"suite", "machine", "emel", "runs", "warmup", "results"}
    assert (report["suite"], report["emel"]["route"]) == ("roofline", BEST)
    names = [] if BEST == "scalar" else ["int8 multiply-adds", "float32 multiply-adds"]
    expected = [(name, n) for n in (1, 2) for name in [*names, "reading memory"]]
    assert [(row["roof"], row["threads"]) for row in report["results"]] == expected
    for row in report["results"]:
        assert set(row) == {"roof", "threads", "per_thread"} | STATISTICS
        assert len(row["samples"]) == 2
        assert row["per_thread"] == pytest.approx(row["median"] / row["threads"])


def test_roofline_of_the_specification_reads_alone_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMEL_ISA", "scalar")
    assert main(["roofline", "--runs", "1", "--warmup", "0", "-t", "1", "--megabytes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("reading memory")
    assert lines[-1].startswith("the scalar route has no multiply-add roofs")


def test_kernels_measures_every_packable_format(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, *SMALL, "--tokens", "1,8")
    assert [(row["format"], row["tokens"]) for row in report["results"]] == [
        (type_.name, n_tokens) for type_ in PACKABLE for n_tokens in (1, 8)
    ]


def test_kernels_json_has_the_share_of_the_roof_that_applies(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, *SMALL, "--format", "q8_0, F16,q8_0", "--tokens", "1,3")
    extras = {"gigabytes", "roof", "share_of_read", "share_of_two_plane", "share_of_int8", "share_of_fma"}
    filled = []
    for row in report["results"]:
        assert set(row) == {"format", "tokens", "threads"} | STATISTICS | extras
        filled.append((row["format"], row["tokens"], {name for name in extras if row[name] is not None}))
    read = {"gigabytes", "roof", "share_of_read"}
    int8 = {"roof", "share_of_int8", "share_of_two_plane"} if BEST != "scalar" else set()
    fma = {"roof", "share_of_fma"} if BEST != "scalar" else set()
    assert filled == [("Q8_0", 1, read), ("Q8_0", 3, int8), ("F16", 1, read), ("F16", 3, fma)]


@pytest.mark.parametrize(
    ("roof", "limit", "expected"),
    [
        (Roof.READ, 40.0, {"roof": 40.0, "gigabytes": 30.0, "share_of_read": 0.75}),
        (Roof.INT8, 240.0, {"roof": 240.0, "share_of_int8": 0.25, "share_of_two_plane": 0.5}),
        (Roof.FMA, 80.0, {"roof": 80.0, "share_of_fma": 0.75}),
        (Roof.INT8, None, {"roof": None}),
        (Roof.READ, None, {"roof": None, "gigabytes": 30.0}),
    ],
)
def test_shares_are_of_the_roof_in_question(roof: Roof, limit: float | None, expected: dict[str, float | None]) -> None:
    assert kernels.shares_of(roof, 60.0, limit, 0.5) == expected


def test_kernels_one_token_reads_all_of_the_matrix_and_more_tokens_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def note(product: Product, _n_calls: int) -> float:
        seen.append((product.n_weight_bytes, product.n_multiply_adds))
        return 1.0

    monkeypatch.setattr(Product, "time_calls", note)
    assert main([*SMALL, "--format", "q4_0", "--tokens", "1,8"]) == 0
    (large, _), (small, _) = seen[0], seen[-1]
    assert large >= 1 << 20
    assert large / kernels.CACHED_SHARE <= small < large / kernels.CACHED_SHARE * 1.2


def test_kernels_table_names_the_two_plane_roof(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--format", "q4_0", "--tokens", "2"]) == 0
    printed = capsys.readouterr().out
    assert "of the two-plane roof  of int8" in printed
    assert printed.endswith("the roof of float32 multiply-adds.\n")


def test_kernels_with_one_plane_hold_it_to_the_whole_roof(capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--activations", "int8", "--format", "q4_0", "--tokens", "1,2"]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert "of the read roof  of int8" in printed
    assert "an activation has one int8 plane" in printed
    one, two = report_of(capsys, *options)["results"]
    assert "share_of_two_plane" not in two
    assert one["share_of_read"] is not None
    assert (two["share_of_int8"] is not None) == (BEST != "scalar")


def test_kernels_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    path = tmp_path / "kernels.png"
    assert main([*SMALL, "--format", "q4_0,f32", "--tokens", "1,2", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_parallel_matmul_sets_lanes_against_one(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, "parallel_matmul", "--runs", "2", "-t", "2,3", "--size", "256")
    assert report["end_to_end"] is None
    tests = ["gemv f32", "gemv q8_0", "gemv q4_k", "gemv q6_k", "gemm8 f32"]
    assert [(row["test"], row["kind"], row["threads"]) for row in report["results"]] == [
        (test, kind, threads) for n in (2, 3) for test in tests for kind, threads in (("serial", 1), ("lanes", n))
    ]
    for serial, lanes in zip(report["results"][::2], report["results"][1::2], strict=True):
        assert set(serial) == {"test", "kind", "threads", "ratio"} | STATISTICS
        assert serial["ratio"] == 1
        assert lanes["ratio"] == pytest.approx(lanes["median"] / serial["median"])


def test_parallel_matmul_that_differs_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([b"one", b"another"])
    monkeypatch.setattr(Product, "bits", lambda _: next(answers))
    assert main(["parallel_matmul", "--runs", "1", "-t", "2", "--size", "256"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "emel: error: gemv f32: 2 lanes gave other bits than one",
        "hint: this is a bug: report it",
    ]


def test_parallel_matmul_compares_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "llama_cpp" else real(name))
    monkeypatch.setattr(generation, "lane_command", lambda *_: fake_command("works"))
    options = ["parallel_matmul", "--runs", "1", "-t", "2", "--size", "256", "--compare", "-m", str(model)]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert "llama-cpp-python has no matrix product to call" in printed
    assert [line.split("  ")[0] for line in printed.splitlines()[-2:]] == ["prefill 8", "decode 32"]
    compared = report_of(capsys, *options)["end_to_end"]
    assert [(row["test"], row["threads"]) for row in compared["results"]] == [("prefill 8", 2), ("decode 32", 2)]
    assert compared["results"][0]["ratio"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["kernels", "--format", "q4_0,q9_9"], "argument --format: 'q9_9' is no format with a kernel: F32, F16,"),
        (["kernels", "--format", ""], "argument --format: '' is no format with a kernel"),
        (["kernels", "--cols", "100"], "argument --cols: 100 is below 256"),
        (["kernels", "--cols", "300"], "argument --cols: 300 is not a multiple of 256, the largest block"),
        (["kernels", "--tokens", "0"], "argument --tokens: 0 is below 1"),
        (["parallel_matmul", "--size", "64"], "argument --size: 64 is below 256"),
        (["roofline", "--megabytes", "0"], "argument --megabytes: 0 is below 1"),
        (["roofline", "--plot", "a.png"], "unrecognized arguments: --plot a.png"),
    ],
)
def test_kernel_suites_usage_errors_name_the_option(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(options)
    assert end.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("suite", ["roofline", "kernels", "parallel_matmul"])
def test_kernel_suites_refuse_a_route_that_does_not_run_here(
    suite: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMEL_ISA", "mmx")
    assert main([suite]) == 1
    assert "names the CPU route 'mmx', but there is no such route; available here: scalar" in capsys.readouterr().err


@pytest.mark.parametrize("suite", ["roofline", "kernels", "parallel_matmul"])
def test_kernel_suites_refuse_more_lanes_than_a_pool_has(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([suite, "-t", "1,5000"]) == 1
    assert "--threads: 5000 is more than" in capsys.readouterr().err


def test_parallel_matmul_model_without_compare_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parallel_matmul", "-m", "a.gguf"]) == 1
    assert "--model is for --compare" in capsys.readouterr().err


def test_parallel_matmul_compare_without_llama_cpp_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["parallel_matmul", "--compare"]) == 1
    assert "--compare needs llama-cpp-python, which is not installed" in capsys.readouterr().err
