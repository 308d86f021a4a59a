from __future__ import annotations

import json
from typing import TYPE_CHECKING

from emel.cli.main import main
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_request_and_loop_are_measured_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=200), "Q8_0")
    command = ["bench", "one_request", "-m", str(path), "--decode", "20", "--runs", "3"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "bare loop of plan runs" in printed
    assert "the bar of 1.02x" in printed
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["results"]) == 3
    for pair in report["results"]:
        assert min(*pair["loop"], *pair["request"]) > 0
    ratios = sorted(each["request"][1] / each["loop"][1] for each in report["results"])
    assert report["cpu_ratio"] == ratios[1]
