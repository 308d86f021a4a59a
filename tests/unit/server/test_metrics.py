"""Metrics and the access log."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from emel.text.lanes import WaveCounters
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


def samples(client: TestClient) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_tell_what_the_wave_counts_by_both_names(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model)
    model.wave.view.lanes, model.wave.view.waiting = (1, 2, 3), (4,)
    model.wave.counters = WaveCounters(n_prompt_tokens=7, n_generated_tokens=5, n_steps=2, n_lanes_busy=3, n_stopped=4)
    seen = samples(client)
    model_name = '{model_name="fake"}'
    expected = {
        "emel_requests_running": 3, "llamacpp:requests_processing": 3, "emel_requests_waiting": 1, "emel_lanes": 8,
        "emel_prompt_tokens_total": 7, "llamacpp:prompt_tokens_total": 7, "llamacpp:tokens_predicted_total": 5,
        "llamacpp:n_busy_slots_per_decode": 1.5, "llamacpp:n_decode_total": 2, "emel_kv_blocks": 100,
    }  # fmt: skip
    assert {name: seen[name + model_name] for name in expected} == expected
    assert seen['emel_requests_finished_total{model_name="fake",reason="stop"}'] == 4


@pytest.mark.parametrize("stream", [False, True])
def test_times_are_observed_once_for_each_answer(serve: Callable[..., TestClient], stream: bool) -> None:
    client = serve(FakeModel("a", "b", "c"))
    client.post(PATH, json={**CHAT, "stream": stream, "n": 2})
    seen = samples(client)
    assert seen['emel_time_to_first_token_seconds_count{model_name="fake"}'] == 2
    assert seen['emel_request_seconds_count{model_name="fake"}'] == 2
    assert seen['emel_inter_token_seconds_count{model_name="fake"}'] == 4
    assert seen['emel_http_responses_total{path="/v1/chat/completions",status="200"}'] == 1


def test_paths_that_clients_make_up_are_one_metric(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    for name in "abc":
        client.get(f"/{name}")
    assert samples(client)['emel_http_responses_total{path="other",status="404"}'] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_the_access_log_has_a_line_with_what_the_answer_took(
    serve: Callable[..., TestClient], caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    client = serve(FakeModel("x"))
    with caplog.at_level(logging.INFO, "emel.access"):
        client.post(PATH, json={**CHAT, "stream": stream})
        client.get("/health")
    [line] = [json.loads(each.message) for each in caplog.records if each.name == "emel.access"]
    assert (line["method"], line["path"], line["status"]) == ("POST", PATH, 200)
    assert (line["prompt_tokens"], line["tokens"], line["finish"]) == (3, 2, ["stop"])
    assert line["ttft_ms"] == 100.0
