from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import pytest

from cli.process import FAKE, run_emel
from emel.cli.main import build_parser
from emel.cli.tracing import add_trace, traced
from unit.sm.samples import Flip, SwitchContext, SwitchMachine

if TYPE_CHECKING:
    from pathlib import Path


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_trace(parser)
    return parser.parse_args(words)


def test_trace_is_written_only_when_asked_for(tmp_path: Path) -> None:
    machine = SwitchMachine(SwitchContext())
    with traced(parse()):
        machine.dispatch(Flip())
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "steps.jsonl"
    with traced(parse("--trace", str(path))):
        machine.dispatch(Flip())
    machine.dispatch(Flip())
    (step,) = [json.loads(line) for line in path.read_text().splitlines()]
    shown = {name: step[name] for name in ("machine", "source", "event", "guard", "effect", "destination")}
    assert list(shown.values()) == ["SwitchMachine", "ON", "Flip", None, "flip", "OFF"]
    assert step["duration_ns"] > 0


def test_trace_is_whole_although_the_command_failed(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("broken")

    path = tmp_path / "steps.json"
    machine = SwitchMachine(SwitchContext(fail))
    with pytest.raises(ValueError, match="broken"), traced(parse("--trace", str(path))):
        machine.dispatch(Flip())
    (piece,) = json.loads(path.read_text())
    assert (piece["name"], piece["args"]["error"]) == ("SwitchMachine: OFF -> ON", "ValueError('broken')")


@pytest.mark.parametrize("command", ["run", "chat"])
def test_run_and_chat_take_a_trace_file(command: str) -> None:
    assert build_parser(command).parse_args([command, "--trace", "x.json"]).trace == "x.json"
    assert build_parser(command).parse_args([command]).trace is None


def test_trace_into_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    model = tmp_path / "empty.gguf"
    model.touch()
    path = tmp_path / "nowhere" / "steps.json"
    outcome = run_emel("run", str(model), "x y", "--trace", str(path), folder=tmp_path, program=FAKE)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"emel: error: {str(path)!r}: No such file or directory\n"


@pytest.mark.model
def test_trace_of_a_run_shows_the_machines_that_made_it(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    words = ["-m", str(smollm2_path), "-p", "Hello", "-n", "3", "-q", "--temp", "0"]
    plain = run_emel("run", *words, folder=tmp_path)
    outcome = run_emel("run", *words, "--trace", str(path), folder=tmp_path)
    assert outcome == plain
    assert outcome.code == 0
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    machines = {step["machine"] for step in steps}
    assert {"ReaderMachine", "LoaderMachine", "GraphMachine", "ProcessorMachine", "GeneratorMachine"} <= machines
    assert all(step["error"] is None for step in steps)
    n_kernel_runs = sum(step["effect"] == "run_kernel" for step in steps)
    assert n_kernel_runs >= 3
