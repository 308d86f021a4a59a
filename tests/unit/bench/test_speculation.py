from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.bench.speculation import SpeculationRun, measure_pair
from emel.bench.speculation_workloads import WORKLOADS
from emel.cli.main import main
from emel.errors import EmelError
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=1200), "Q8_0")
    return path


def test_suite_shows_every_text_with_its_ratio(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "speculation", "-m", str(path), "-t", "1", "--tokens", "12", "--runs", "2", "--warmup", "0"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert [line.split("  ")[0] for line in shown.splitlines()[-4:]] == [each.name for each in WORKLOADS]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["text"] for each in report["results"]] == [each.name for each in WORKLOADS]
    assert all(len(each["runs"]) == 2 and each["ratio"] > 0 for each in report["results"])


def test_ratio_is_how_many_times_as_fast() -> None:
    assert SpeculationRun(100.0, 250.0, 9, 5).ratio == 2.5


def test_an_answer_that_guesses_change_ends_the_suite(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with emel.load(path, n_threads=1) as model:
        generate = model.generate_ids

        def generate_wrongly(*ids: Any, **options: Any) -> emel.Completion:
            answer = generate(*ids, **options)
            return replace(answer, token_ids=answer.token_ids[:-1]) if options["speculate"] else answer

        assert measure_pair(model, WORKLOADS[0], 8).plain > 0
        monkeypatch.setattr(model, "generate_ids", generate_wrongly)
        with pytest.raises(EmelError, match="repetitive text: the answer with guesses is another than without"):
            measure_pair(model, WORKLOADS[0], 8)


def test_an_answer_that_ends_at_once_is_refused(path: Path) -> None:
    with emel.load(path, n_threads=1) as model, pytest.raises(EmelError, match="nothing can be timed"):
        measure_pair(model, WORKLOADS[0], 1)
