from __future__ import annotations

import json
from typing import TYPE_CHECKING

from emel.cli.main import main
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_step_measures_both_ways_between_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=200), "Q8_0")
    command = ["bench", "step", "-m", str(path), "--lanes", "1,2", "--decode", "20"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines()[-4:]] == [
        ["1", "off"],
        ["1", "looked"],
        ["2", "off"],
        ["2", "looked"],
    ]
    assert main([*command, "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["results"]:
        # The first token comes with the prompt; between the runs of the 19 others lie 18 steps.
        assert len(row["idle"]) == 18
        assert min(*row["idle"], *row["real"]) > 0
