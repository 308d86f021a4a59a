"""The machine suites run to their end and measure what they say; their figures are not judged here."""

from __future__ import annotations

import importlib.util
import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from emel.bench import sm_decode_wavefront, sm_graph_processor, sm_scheduler, sm_timing, sm_transition
from emel.bench.main import main
from emel.graph.errors import GraphError
from emel.graph.processor import ProcessorContext
from emel.sm import CoMachine, Machine
from emel.sm.registry import machine_classes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sm_timing, "N_BLOCKS", 2)
    monkeypatch.setattr(sm_timing, "BLOCK_SECONDS", 1e-5)
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_transition_suite_measures_machines_that_work() -> None:
    for base in (Machine, CoMachine):
        machine = sm_transition.lamp(base, sm_transition.switch)
        machine.dispatch(sm_transition.Flip())
        assert machine.state is sm_transition.Lamp.ON
    lines = sm_transition.run(1, 0)
    assert [line.subject for line in lines][:3] == ["Machine", "CoMachine", "CoMachine, asynchronous"]


def test_transition_suite_says_which_libraries_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["sm", "--runs", "1", "--warmup", "0"]) == 0
    printed = capsys.readouterr()
    assert "transitions" not in printed.out
    assert (
        printed.err == "not compared, as not installed: transitions, python-statemachine (pip install 'emel[bench]')\n"
    )


@pytest.mark.parametrize("package", sm_transition.LIBRARIES)
def test_other_libraries_take_the_same_transition(package: str) -> None:
    pytest.importorskip(sm_transition.LIBRARIES[package])
    make = {"transitions": sm_transition._transitions, "python-statemachine": sm_transition._python_statemachine}
    assert make[package]()(3) > 0


def test_scheduler_suite_has_every_policy_and_the_native_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm_scheduler, "N_LANES", (1, 2))
    monkeypatch.setattr(sm_scheduler, "n_cpus", lambda: 2)
    lines = sm_scheduler.run(1, 0)
    found = {(line.test, line.subject) for line in lines}
    assert {"inline", "fifo", "external completion"} <= {subject for test, subject in found if test == "dispatch"}
    for load in ("idle", "busy"):
        assert (f"fork/join, 1 lane, {load}", "native lane pool") in found
        assert (f"fork/join, 2 lanes, {load}", "native lane pool") in found
        assert (f"fork/join, 2 lanes, {load}", "worker threads") in found
    assert [str(line.bar) for line in lines if line.bar != sm_timing.NO_BAR] == ["at most 3 us"]


def test_graph_processor_suite_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph_processor", "--runs", "1", "--warmup", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["suite"] == "graph_processor"
    ways = ["plain", "coroutine", "coroutine, asynchronous"]
    assert [(line["test"], line["subject"]) for line in report["results"]] == [
        (row, way) for row in ("invalid", "reused", "alloc") for way in ways
    ]
    assert [line["bar"] for line in report["results"][:2]] == [None, "at most 1.3x"]


def test_graph_processor_suite_runs_the_rows_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[ProcessorContext] = []
    seen: list[tuple[str, set[str], set[int]]] = []

    class Noted(ProcessorContext):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            contexts.append(self)

    def look(test: str, subjects: dict[str, Any], *_: object) -> list[object]:
        for timed in subjects.values():
            timed(2)
        errors = {str(context.error).partition(",")[0] for context in contexts}
        seen.append((test, errors, {context.n_runs for context in contexts}))
        contexts.clear()
        return []

    monkeypatch.setattr(sm_graph_processor, "measure", look)
    monkeypatch.setattr(sm_graph_processor, "ProcessorContext", Noted)
    assert sm_graph_processor.run(1, 0) == []
    assert seen == [
        ("invalid", {"the batch has 0 tokens"}, {0}),
        ("reused", {"None"}, {2}),
        ("alloc", {"None"}, {2}),
    ]


def test_decode_wavefront_suite_prints_every_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sm_decode_wavefront, "n_cpus", lambda: 2)
    assert main(["decode_wavefront", "--runs", "1", "--warmup", "0", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(line["test"], line["subject"]) for line in results] == [
        (f"{kind}{n_lanes}, {threads}", way)
        for kind in ("batch", "gemv_batch")
        for n_lanes in (1, 4, 8)
        for threads in ("1 thread", "2 threads")
        for way in ("lane after lane", "one batch")
    ]
    assert {(line["test"], line["bar"]) for line in results if line["bar"]} == {
        ("gemv_batch8, 2 threads", "at most 0.588x")
    }


def test_decode_wavefront_suite_takes_no_more_threads_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sm_decode_wavefront, "n_cpus", lambda: 1)
    assert {n_threads for *_, n_threads in sm_decode_wavefront.rows()} == {1}


@pytest.mark.parametrize(("width", "n_counted"), [(1, 4), (256, 0)])
def test_decode_wavefront_suite_does_the_same_work_both_ways(width: int, n_counted: int) -> None:
    with ExitStack() as stack:
        waves = sm_decode_wavefront.Waves(stack, sm_decode_wavefront.OneLinear(width), 4, 1)
        for way in waves.ways().values():
            before = waves.n_counted
            way(None)
            waves.check()
            assert waves.n_counted - before == n_counted
        assert waves.machine.context.processor.context.n_runs == 4 + 1
        waves.compare()
        assert waves.machine.context.processor.context.n_runs == 2 * (4 + 1)
        assert any(waves.wave.batch.logits(3))
        if width > 1:
            assert bytes(waves.wave.batch.logits(0)) != bytes(waves.wave.batch.logits(1))


def test_decode_wavefront_suite_refuses_other_bits() -> None:
    with ExitStack() as stack:
        waves = sm_decode_wavefront.Waves(stack, sm_decode_wavefront.OneLinear(256), 4, 1)
        waves.singles[2].batch.tokens[0] += 1
        with pytest.raises(GraphError, match="lane 2 of 4 has other bits in a batch than alone"):
            waves.compare()
        waves.singles[2].batch.tokens[0] = 256
        with pytest.raises(GraphError, match="the native run was refused"):
            waves.compare()


def test_machines_of_the_suites_are_none_of_emel() -> None:
    sm_transition.lamp(Machine, sm_transition.switch)
    assert not [each for each in machine_classes() if each.__name__.startswith(("Lamp", "Plain"))]
