from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emel.bench.lane import EMEL, LLAMA_CPP, Lane, cold_start, lane_command
from emel.bench.protocol import LaneError, Ready, Timings

FAKE = Path(__file__).with_name("fake_lane.py")


def fake_command(behaviour: str) -> list[str]:
    return [sys.executable, str(FAKE), behaviour]


def test_lane_describes_itself_and_measures() -> None:
    with Lane("fake", fake_command("works")) as lane:
        assert lane.ready == Ready("fake", "1.2", "scalar", 100)
        assert lane.measure([1, 2], 3) == Timings(0.002, 0.03)
        assert lane.measure([1], 0) == Timings(0.001, 0.0)


def test_lane_is_not_disturbed_by_what_libraries_print(capfd: pytest.CaptureFixture[str]) -> None:
    with Lane("fake", fake_command("prints")) as lane:
        assert lane.measure([1], 1) == Timings(0.001, 0.01)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "a library says hello" in printed.err
    assert "and so does C" in printed.err


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        ("fails-to-load", r"^fake: ValueError: no such model$"),
        ("dies-loading", r"^fake: its process ended with code 3 and without an answer$"),
        ("fails", r"^fake: RuntimeError: the seventh layer is not finite$"),
        ("dies", r"^fake: its process was killed by SIGKILL\nhint: memory may have run out$"),
        ("babbles", r"^fake: expected a line of JSON, got 'hello'$"),
    ],
)
def test_lane_failures_name_the_engine_and_the_cause(behaviour: str, text: str) -> None:
    with Lane("fake", fake_command(behaviour)) as lane, pytest.raises(LaneError, match=text):
        lane.measure([1], 1)


def test_lane_that_ended_keeps_failing() -> None:
    with Lane("fake", fake_command("fails")) as lane:
        for _ in range(2):
            with pytest.raises(LaneError, match=r"^fake: "):
                lane.measure([1], 1)


def test_lane_close_ends_a_child_that_is_at_work_and_may_be_repeated() -> None:
    lane = Lane("fake", fake_command("babbles"))
    lane.close()
    lane.close()
    assert lane._process.returncode is not None


def test_cold_start_takes_time_and_the_memory_of_the_child() -> None:
    start = cold_start("fake", fake_command("works"), [1, 2])
    assert 0 < start.seconds < 60
    assert 1e6 < start.peak_bytes < 1e9


def test_lane_reports_the_memory_of_its_own_process_alone() -> None:
    ballast = b"x" * (200 << 20)  # resident here: a child must not inherit it
    with Lane("fake", fake_command("works")) as lane:
        assert lane.measure([1], 0).peak_bytes < len(ballast)


@pytest.mark.parametrize(
    ("engine", "module"), [(EMEL, "emel.bench.lane_emel"), (LLAMA_CPP, "emel.bench.lane_llama_cpp")]
)
def test_lane_command_runs_the_module_of_the_engine(engine: str, module: str) -> None:
    assert lane_command(engine, Path("a.gguf"), 2, 640) == [sys.executable, "-m", module, "a.gguf", "2", "640"]
