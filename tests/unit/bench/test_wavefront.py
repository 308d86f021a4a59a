from __future__ import annotations

import argparse
import io
import json
from typing import TYPE_CHECKING

import pytest

from emel.bench.lane import EMEL, LLAMA_CPP
from emel.bench.protocol import LaneError, Ready
from emel.bench.wavefront import WavePlan, WaveRow, percentile, render_waves, waves_to_json
from emel.bench.wavefront_command import configure, run
from emel.bench.wavefront_emel import EmelWaves
from emel.bench.wavefront_protocol import WaveTimes, decode_times, serve_waves

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_rates_count_tokens_from_when_all_had_their_first() -> None:
    run = WaveTimes([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    assert run.total_rate == 6 / 6.0
    assert run.decode_rate == 3 / 4.0
    assert run.first_tokens == [1.0, 2.0]
    assert run.gaps == [1.0, 1.0, 2.0, 2.0]


def test_rate_of_single_tokens_is_the_total_rate() -> None:
    run = WaveTimes([[2.0], [2.0]])
    assert run.decode_rate == run.total_rate == 1.0
    assert run.gaps == []


@pytest.mark.parametrize(("n", "share", "expected"), [(100, 0.99, 99), (100, 0.5, 50), (1, 0.99, 1), (3, 0.99, 3)])
def test_percentile_is_the_smallest_sample_that_covers_the_share(n: int, share: float, expected: int) -> None:
    assert percentile([*range(n, 0, -1)], share) == expected


def test_table_sets_rates_beside_one_sequence_and_the_other_engine() -> None:
    fast, slow = WaveTimes([[1.0, 2.0, 3.0]]), WaveTimes([[1.0, 3.0, 5.0]])
    many = WaveTimes([[1.0, 2.0, 3.0]] * 4)
    rows = [
        WaveRow(EMEL, 1, [fast]),
        WaveRow(LLAMA_CPP, 1, [slow]),
        WaveRow(EMEL, 4, [many]),
    ]
    lines = render_waves(rows).splitlines()[2:]
    assert lines[0].split()[:5] == ["1", EMEL, "1", "1.00x", "2.00x"]
    assert lines[1].split()[:3] == ["1", LLAMA_CPP, "0"]
    assert lines[2].split()[:4] == ["4", EMEL, "4", "4.00x"]
    as_json = waves_to_json(rows)
    assert as_json[2]["decode_tokens_per_second"] == 4.0
    assert as_json[2]["times"] == [many.times]
    assert as_json[1]["between_tokens_ms_p99"] == 2000.0


class Engine:
    def describe(self) -> Ready:
        return Ready("fake", "1", "none", 10)

    def generate(self, prompts: Sequence[Sequence[int]], n_decode: int) -> list[list[float]]:
        if n_decode == 9:
            raise RuntimeError("too many")
        return [[float(len(prompt))] * n_decode for prompt in prompts]


def test_child_answers_until_its_requests_end() -> None:
    answers = io.StringIO()
    requests = io.StringIO(json.dumps({"prompts": [[1, 2], [3]], "n_decode": 2}) + "\n")
    assert serve_waves(Engine, requests, answers) == 0
    ready, times = answers.getvalue().splitlines()
    assert json.loads(ready)["ready"]["engine"] == "fake"
    assert decode_times(times) == WaveTimes([[2.0, 2.0], [1.0, 1.0]])


def test_child_tells_what_went_wrong() -> None:
    answers = io.StringIO()
    assert serve_waves(Engine, io.StringIO(json.dumps({"prompts": [[1]], "n_decode": 9}) + "\n"), answers) == 1
    with pytest.raises(LaneError, match="RuntimeError: too many"):
        decode_times(answers.getvalue().splitlines()[1])


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"times": []}', '{"times": [[]]}', '{"times": 3}'])
def test_answer_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(LaneError, match="expected"):
        decode_times(line)


def test_plan_tells_emel_alone_what_activations_to_take(tmp_path: Path) -> None:
    plan = WavePlan(tmp_path / "a.gguf", 2, (1, 8), 64, 32, 1, 0, compare=True, activations="int8")
    assert [plan.command(engine)[3:] for engine in plan.engines] == [
        [str(plan.model), "2", "96", "8", "int8"],
        [str(plan.model), "2", "96", "8"],
    ]


def test_command_hands_the_activations_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[WavePlan] = []

    def run_waves(plan: WavePlan, _progress: object) -> tuple[dict[str, Ready], list[WaveRow]]:
        plans.append(plan)
        return {}, []

    monkeypatch.setattr("emel.bench.wavefront.run_waves", run_waves)
    (tmp_path / "a.gguf").touch()
    parser = argparse.ArgumentParser()
    configure(parser)
    for options in ([], ["--activations", "int8"]):
        assert run(parser.parse_args(["-m", str(tmp_path / "a.gguf"), *options])) == 0
    assert [plan.activations for plan in plans] == ["int16", "int8"]


@pytest.mark.parametrize(("activations", "route"), [((), "scalar"), (("int8",), "scalar int8")])
def test_emel_lane_says_what_activations_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, activations: tuple[str, ...], route: str
) -> None:
    from model.tiny_llama import Geometry, write_tiny_llama

    monkeypatch.setenv("EMEL_ISA", "scalar")
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=96), "Q8_0")
    assert EmelWaves(str(path), 1, 40, 2, *activations).describe().route == route


def test_emel_lane_times_every_token(tmp_path: Path) -> None:
    from model.tiny_llama import Geometry, write_tiny_llama

    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=96), "Q8_0")
    engine = EmelWaves(str(path), 1, 40, 4)
    times = engine.generate([[5, 6], [7, 8], [9, 10]], 6)
    assert len(times) == 3
    assert all(each == sorted(each) and 1 <= len(each) <= 6 for each in times)
    assert engine.describe().engine == "EMEL"
