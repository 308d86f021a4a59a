from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from emel.bench.served_process import ServedProcess
from emel.cli.main import main
from emel.errors import EmelError
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=200), "Q8_0")
    return path


def test_server_suite_tells_starts_and_time_per_token(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "server", "-m", str(tiny_path), "-t", "1", "--streams", "1,3", "--decode", "20", "--runs", "1"]
    assert main([*command, "--warmup", "0", "--json"]) == 0
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert 0 < result["listening"] <= result["ready"]
    assert 0 < result["listening_cpu"] <= result["ready_cpu"]
    for n in ("1", "3"):
        assert 1e-6 < result["token_cpu"][n] < 0.1
        assert 0.2 < result["events_per_token"][n] < 1.5


def test_table_of_the_server_suite_has_a_line_for_each_figure(
    tiny_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (5000.0, 0.0, 0.0))
    command = ["bench", "server", "-m", str(tiny_path), "-t", "1", "--streams", "2", "--decode", "8", "--runs", "1"]
    assert main([*command, "--warmup", "0"]) == 0
    told = capsys.readouterr().out
    for figure in (
        "start to listening",
        "start to the model",
        "of CPU",
        "HTTP of a token, 2 streams",
        "the bar of 0.8",
        "1 thread,",
        "busy     load 5000.0 before the runs",
    ):
        assert figure in told


def test_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmelError, match="the server did not start"):
        ServedProcess(tmp_path / "none.gguf", [])
