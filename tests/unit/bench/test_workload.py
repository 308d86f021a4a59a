from __future__ import annotations

import pytest

from emel.bench.protocol import Timings
from emel.bench.workload import Workload, plan_workloads, prompt_ids


def test_workloads_come_in_order_with_one_token_to_start_a_decode() -> None:
    workloads = plan_workloads([512, 2048], 128, [0, 1024], [1, 100], cold_start=True)
    assert [workload.name for workload in workloads] == [
        "prefill 512",
        "prefill 2048",
        "decode 128",
        "decode 128 at depth 1024",
        "answer 1",
        "answer 100",
        "cold start",
    ]
    assert [workload.n_prompt for workload in workloads] == [512, 2048, 1, 1024, 16, 16, 16]
    assert [workload.n_decode for workload in workloads] == [0, 0, 128, 128, 0, 99, 0]


def test_workloads_that_are_the_same_run_once() -> None:
    assert plan_workloads([8, 8], 4, [0, 1], [5, 5], cold_start=False) == [
        Workload("prefill", 8, 0),
        Workload("decode", 1, 4),
        Workload("answer", 16, 4),
    ]


def test_workload_results_are_rates_of_a_phase_or_the_whole_time() -> None:
    timings = Timings(prefill_seconds=0.5, decode_seconds=2.0)
    assert Workload("prefill", 512, 0).result(timings) == 1024.0
    assert Workload("decode", 1024, 128).result(timings) == 64.0
    assert Workload("answer", 16, 99).result(timings) == 2.5


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        ("prefill", "tokens/s"),
        ("decode", "tokens/s"),
        ("answer", "s"),
        ("cold start", "s"),
        ("cold start ready", "s"),
        ("cold start peak", "MB"),
    ],
)
def test_workload_unit_follows_its_kind(kind: str, unit: str) -> None:
    assert Workload(kind, 16, 4).unit == unit  # type: ignore[arg-type]


def test_workload_context_holds_prompt_and_answer() -> None:
    assert Workload("decode", 1024, 128).n_ctx == 1152


def test_prompt_ids_are_the_same_each_time_and_inside_the_vocabulary() -> None:
    token_ids = prompt_ids(500, 7)
    assert token_ids == prompt_ids(500, 7)
    assert len(token_ids) == 500
    assert set(token_ids) == set(range(7))
