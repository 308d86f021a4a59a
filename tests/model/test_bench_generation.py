"""The generation suite on a tiny model, with EMEL's real lane."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from emel.bench.lane import EMEL, Lane, lane_command
from emel.bench.main import main
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The lane is a new process: it must find the package where this one does.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1), "Q4_1")
    return path


def test_emel_lane_measures_a_prefill_and_a_decode(tiny_model: Path) -> None:
    with Lane(EMEL, lane_command(EMEL, tiny_model, 2, 64)) as lane:
        assert (lane.ready.engine, lane.ready.n_vocab) == ("EMEL", 320)
        prefill = lane.measure(list(range(40)), 0)
        assert prefill.prefill_seconds > 0
        assert prefill.decode_seconds >= 0
        assert lane.measure([5], 24).decode_seconds > 0


def test_generation_suite_reports_every_row(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--runs", "2", "--warmup", "0", "--prefill", "8,40", "--decode", "4", "--depth", "0,16"]
    options += ["--answer", "2", "-t", "1,2"]
    assert main(["generation", "-m", str(tiny_model), "--json", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    tests = [
        "prefill 8",
        "prefill 40",
        "decode 4",
        "decode 4 at depth 16",
        "answer 2",
        "cold start",
        "cold start ready",
        "cold start peak",
    ]
    assert [(row["test"], row["threads"]) for row in report["results"]] == [(t, n) for n in (1, 2) for t in tests]
    assert all(len(row["engines"]["EMEL"]["samples"]) == 2 for row in report["results"])
