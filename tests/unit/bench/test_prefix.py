from __future__ import annotations

import json
from typing import TYPE_CHECKING

from emel.cli.main import main
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_second_request_finds_the_prefix_of_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=200), "Q8_0")
    command = ["bench", "prefix", "-m", str(path), "-t", "1", "--prefix", "100", "--runs", "2", "--warmup", "0"]
    assert main(command) == 0
    assert "96 tokens found" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["found"] for each in report["results"]] == [96, 96]
