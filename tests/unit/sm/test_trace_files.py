from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from emel.sm.trace import trace
from emel.sm.trace_files import JsonLines, PerfettoTrace, open_trace
from unit.sm.samples import Begin, ChunkRead, Context, DownloadMachine, Flip, SwitchContext, SwitchMachine

if TYPE_CHECKING:
    from pathlib import Path

    from emel.sm.trace import Transition


def test_json_lines_holds_one_transition_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with JsonLines(path) as sink, trace(sink):
        DownloadMachine(Context()).dispatch(Begin(1))
        SwitchMachine(SwitchContext()).dispatch(Flip())
    text = path.read_text(encoding="utf-8")
    assert text.endswith("}\n")
    first, second = (json.loads(line) for line in text.splitlines())
    assert second["machine"] == "SwitchMachine"
    assert first.pop("begin_ns") <= second["begin_ns"]
    assert first.pop("duration_ns") >= 0
    assert first == {
        "machine": "DownloadMachine",
        "context_index": 0,
        "source": "IDLE",
        "event": "Begin",
        "is_completion": False,
        "guard": "is_possible",
        "effect": "start",
        "destination": "READING",
        "thread_id": threading.get_ident(),
        "error": None,
    }


def test_perfetto_trace_is_an_array_of_complete_slices(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    seen: list[Transition] = []
    with PerfettoTrace(path) as sink, trace(sink), trace(seen.append):
        machine = DownloadMachine(Context())
        machine.dispatch(Begin(1))
        machine.dispatch(ChunkRead())
    slices = json.loads(path.read_text(encoding="utf-8"))
    assert [each["name"] for each in slices] == [
        "DownloadMachine: IDLE -> READING",
        "DownloadMachine: READING -> READING",
        "DownloadMachine: READING -> CHECKING",
        "DownloadMachine: CHECKING -> DONE",
    ]
    assert {(each["ph"], each["cat"], each["pid"], each["tid"]) for each in slices} == {
        ("X", "DownloadMachine", os.getpid(), threading.get_ident())
    }
    assert slices[2]["args"] == {
        "event": "ChunkRead",
        "is_completion": True,
        "guard": "has_all",
        "effect": None,
        "context_index": 0,
        "error": None,
    }
    assert [each["ts"] for each in slices] == [each.begin_ns / 1000 for each in seen]


@pytest.mark.parametrize(("kind", "empty"), [(JsonLines, ""), (PerfettoTrace, "[\n\n]\n")])
def test_trace_file_without_transitions_can_be_read(
    tmp_path: Path, kind: type[JsonLines] | type[PerfettoTrace], empty: str
) -> None:
    path = tmp_path / "trace"
    path.write_text("left over from an earlier run")
    kind(path).close()
    assert path.read_text(encoding="utf-8") == empty


def test_trace_file_closes_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with PerfettoTrace(path) as sink:
        sink.close()
    assert json.loads(path.read_text(encoding="utf-8")) == []


def test_trace_file_that_was_closed_ends_the_recording_with_an_error(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "trace.jsonl")
    sink.close()
    machine = SwitchMachine(SwitchContext())
    with pytest.raises(ValueError, match="closed file"), trace(sink):
        machine.dispatch(Flip())
    assert machine.context.n_flips == 1


def test_trace_file_takes_transitions_of_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"

    def flip_often() -> None:
        machine = SwitchMachine(SwitchContext())
        for _ in range(50):
            machine.dispatch(Flip())

    with JsonLines(path) as sink, trace(sink):
        threads = [threading.Thread(target=flip_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]) == 200


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.json", PerfettoTrace),
        ("a.perfetto", PerfettoTrace),
        ("a.JSON", PerfettoTrace),
        ("a.jsonl", JsonLines),
        ("a", JsonLines),
        (".json", JsonLines),
    ],
)
def test_suffix_chooses_the_kind_of_trace_file(tmp_path: Path, name: str, kind: type) -> None:
    with open_trace(tmp_path / name) as sink:
        assert type(sink) is kind
