from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from emel.bench.protocol import (
    LaneError,
    Ready,
    Timings,
    decode_ready,
    decode_timings,
    encode_request,
    peak_resident_bytes,
    serve,
)
from unit.bench.fake_lane import FakeEngine

if TYPE_CHECKING:
    from pathlib import Path


def answers_to(behaviour: str, requests: str) -> tuple[int, list[str]]:
    answers = io.StringIO()
    code = serve(lambda: FakeEngine(behaviour), io.StringIO(requests), answers)
    return code, answers.getvalue().splitlines()


def test_serve_describes_then_answers_until_the_end() -> None:
    code, lines = answers_to("works", encode_request([1, 2, 3], 5) + encode_request([1], 0))
    assert code == 0
    assert decode_ready(lines[0]) == Ready("fake", "1.2", "scalar", 100)
    assert [decode_timings(line) for line in lines[1:]] == [Timings(0.003, 0.05), Timings(0.001, 0.0)]


def test_serve_ends_quietly_when_nobody_listens() -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    assert serve(lambda: FakeEngine("works"), io.StringIO(), Closed()) == 1


def test_serve_adds_the_peak_of_resident_memory() -> None:
    _, lines = answers_to("works", encode_request([1], 0))
    assert decode_timings(lines[1]).peak_bytes > 1e6


def test_peak_resident_bytes_is_the_kernels_high_water_mark(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  999 kB\nVmHWM:\t  1234 kB\nVmRSS:\t 5 kB\n")
    assert peak_resident_bytes(status) == 1234 * 1024


def test_peak_resident_bytes_is_found_without_a_process_file_system(tmp_path: Path) -> None:
    assert peak_resident_bytes(tmp_path / "missing") > 1e6


def test_serve_reports_a_failed_load_and_ends() -> None:
    code, lines = answers_to("fails-to-load", encode_request([1], 0))
    assert (code, lines) == (1, ['{"error": "ValueError: no such model"}'])


def test_serve_reports_a_failed_run_and_ends() -> None:
    code, lines = answers_to("fails", encode_request([1], 0) * 2)
    assert code == 1
    assert lines[1:] == ['{"error": "RuntimeError: the seventh layer is not finite"}']


def test_serve_reports_a_request_it_does_not_understand() -> None:
    code, lines = answers_to("works", "{}\n")
    assert code == 1
    assert "KeyError" in json.loads(lines[1])["error"]


@pytest.mark.parametrize("decode", [decode_ready, decode_timings])
def test_decode_raises_what_the_child_reported(decode: object) -> None:
    with pytest.raises(LaneError, match=r"^out of luck$"):
        decode('{"error": "out of luck"}\n')  # type: ignore[operator]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("hello\n", "expected a line of JSON, got 'hello'"),
        ("[1]\n", "expected a line with 'timings'"),
        ('{"ready": {}}\n', "expected a line with 'timings'"),
        ('{"timings": {"prefill_seconds": 1}}\n', "expected a line of timings"),
        ('{"timings": {"prefill_seconds": "soon", "decode_seconds": 1}}\n', "expected a line of timings"),
        (
            '{"timings": {"prefill_seconds": 1, "decode_seconds": 1, "nap": 1}}\n',
            "expected a line of timings",
        ),
    ],
)
def test_decode_timings_refuses_other_lines(line: str, text: str) -> None:
    with pytest.raises(LaneError, match=text):
        decode_timings(line)


def test_decode_ready_refuses_a_partial_description() -> None:
    with pytest.raises(LaneError, match="expected a line that describes the engine"):
        decode_ready('{"ready": {"engine": "fake"}}')
