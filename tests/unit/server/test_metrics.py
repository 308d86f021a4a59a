"""Metrics and the access log."""

from __future__ import annotations

import io
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from emel.errors import ModelClosedError, ModelLoadError, RequestError
from emel.io.errors import SourceError
from emel.kernel.streaming import Traffic
from emel.memory.prefix import PrefixCounters
from emel.server.access_log import JsonLines
from emel.text.constraint import ConstraintFailed
from emel.text.errors import NotFiniteError
from emel.text.lanes import WaveCounters
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"
ENDS = ("stop", "length", "cancelled", "failed")


def samples(client: TestClient) -> dict[str, float]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_tell_what_the_wave_counts_by_both_names(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model)
    wave = model.wave
    wave.view.lanes, wave.view.waiting = (1, 2, 3), (4,)
    wave.counters = WaveCounters(
        n_prompt_tokens=7, n_cached_tokens=4, n_generated_tokens=5, n_steps=2, n_lanes_busy=3, n_failed_steps=6,
        n_preempted=8, n_drafts=9, n_draft_tokens=11, n_accepted_tokens=10, n_stopped=4, n_length=3, n_cancelled=2,
        n_failed=1,
    )  # fmt: skip
    wave.prefixes = PrefixCounters(n_lookups=13, n_hits=12, n_evicted=14)
    wave.traffic = Traffic(n_bytes=15, n_loads=1, n_waits=1, n_repeats=0, waited_seconds=1.5)
    seen = samples(client)
    model_name = '{model_name="fake"}'
    expected = {
        "emel_requests_running": 3, "emel_requests_waiting": 1, "emel_lanes": 8, "emel_lanes_busy_total": 3,
        "emel_kv_blocks": 100, "emel_kv_blocks_in_use": 10, "emel_threads": 1,
        "emel_prompt_tokens_total": 7, "emel_cached_tokens_total": 4, "emel_generated_tokens_total": 5,
        "emel_steps_total": 2, "emel_failed_steps_total": 6, "emel_preemptions_total": 8,
        "emel_prefix_lookups_total": 13, "emel_prefix_hits_total": 12, "emel_prefix_blocks_evicted_total": 14,
        "emel_drafts_total": 9, "emel_draft_tokens_total": 11, "emel_accepted_tokens_total": 10,
        "emel_streamed_bytes_total": 15, "emel_streaming_wait_seconds_total": 1.5,
        "llamacpp:requests_processing": 3, "llamacpp:requests_deferred": 1, "llamacpp:n_busy_slots_per_decode": 1.5,
        "llamacpp:prompt_tokens_total": 3, "llamacpp:tokens_predicted_total": 5, "llamacpp:n_decode_total": 2,
        "llamacpp:spec_decode_num_drafts_total": 9, "llamacpp:spec_decode_num_draft_tokens_total": 11,
        "llamacpp:spec_decode_num_accepted_tokens_total": 10,
    }  # fmt: skip
    assert {name: seen[name + model_name] for name in expected} == expected
    ends = {reason: seen[f'emel_requests_finished_total{{model_name="fake",reason="{reason}"}}'] for reason in ENDS}
    assert ends == {"stop": 4, "length": 3, "cancelled": 2, "failed": 1}


def test_speeds_and_lengths_have_the_names_of_llama_cpp(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("a"))
    for _ in range(2):
        client.post(PATH, json=CHAT)
    seen = samples(client)
    model_name = '{model_name="fake"}'  # 3 tokens in 0.1 s, then one more in 0.1 s
    assert seen["llamacpp:n_tokens_max" + model_name] == 5
    assert seen["llamacpp:prompt_tokens_seconds" + model_name] == pytest.approx(30)
    assert seen["llamacpp:predicted_tokens_seconds" + model_name] == pytest.approx(10)
    assert seen["llamacpp:prompt_seconds_total" + model_name] == pytest.approx(0.2)
    assert seen["llamacpp:tokens_predicted_seconds_total" + model_name] == pytest.approx(0.2)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


FAILURES = {
    "not_finite": caused(RequestError("x"), NotFiniteError("layer 1")),
    "read": caused(RequestError("x"), SourceError("the file shrank")),
    "memory": caused(RequestError("x"), MemoryError()),
    "constraint": caused(RequestError("x"), ConstraintFailed("too complex")),
    "unloaded": ModelClosedError("this model is closed"),
    "internal": caused(RequestError("x"), RuntimeError("a fault")),
}


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("stream", [False, True])
def test_failures_are_counted_by_kind(serve: Callable[..., TestClient], kind: str, stream: bool) -> None:
    model = FakeModel()
    client = serve(model)

    def fail() -> None:
        assert model.submitted.wait(10)
        model.requests[0].fail(FAILURES[kind])

    failing = threading.Thread(target=fail)
    failing.start()
    client.post(PATH, json={**CHAT, "stream": stream})
    failing.join()
    seen = {name: value for name, value in samples(client).items() if name.startswith("emel_failures_total")}
    kinds = (*FAILURES, "timeout")
    assert seen == {f'emel_failures_total{{kind="{each}",model_name="fake"}}': float(each == kind) for each in kinds}


def test_what_is_counted_of_a_model_is_told_from_the_start(serve: Callable[..., TestClient]) -> None:
    seen = samples(serve({"a": lambda: FakeModel("x"), "b": broken}))
    for model_name in "ab":
        label = f'{{model_name="{model_name}"}}'
        for name in ("emel_prompt_tokens_total", "emel_queue_seconds_count", "emel_inter_token_seconds_count"):
            assert seen[name + label] == 0
        for kind in (*FAILURES, "timeout"):
            assert seen[f'emel_failures_total{{kind="{kind}",model_name="{model_name}"}}'] == 0
    assert 'emel_lanes{model_name="b"}' not in seen


def broken() -> FakeModel:
    raise ModelLoadError("no model")


class Counting(FakeModel):
    """Each time it is loaded it has counted something; what runs when it is closed fails, as a real one's does."""

    def __init__(self) -> None:
        super().__init__("x")
        self.wave.counters = WaveCounters(n_prompt_tokens=7, n_cached_tokens=4, n_failed=1)
        self.wave.prefixes = PrefixCounters(n_lookups=5)
        self.wave.traffic = Traffic(n_bytes=15, n_loads=1, n_waits=1, n_repeats=0, waited_seconds=1.5)

    def close(self) -> None:
        super().close()
        self.wave.counters.n_failed += 1
        self.wave.traffic = None


def test_counters_do_not_go_back_when_a_model_is_unloaded_and_loaded(serve: Callable[..., TestClient]) -> None:
    client = serve({"fake": Counting})
    names = {
        'emel_prompt_tokens_total{model_name="fake"}': 7,
        'emel_prefix_lookups_total{model_name="fake"}': 5,
        'emel_streamed_bytes_total{model_name="fake"}': 15,
        'emel_streaming_wait_seconds_total{model_name="fake"}': 1.5,
        'llamacpp:prompt_tokens_total{model_name="fake"}': 3,
    }
    failed = 'emel_requests_finished_total{model_name="fake",reason="failed"}'
    for n_loads in (1, 2, 3):
        seen = samples(client)
        assert {name: seen[name] for name in names} == {name: n_loads * each for name, each in names.items()}
        assert seen[failed] == 2 * n_loads - 1
        client.post("/models/unload", json={"model": "fake"})
        seen = samples(client)
        assert {name: seen[name] for name in names} == {name: n_loads * each for name, each in names.items()}
        assert seen[failed] == 2 * n_loads
        assert 'emel_lanes{model_name="fake"}' not in seen
        client.post("/models/load", json={"model": "fake"})


def test_a_request_that_took_too_long_is_a_failure_too(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel(), request_timeout=0.05)
    assert client.post(PATH, json=CHAT).status_code == 504
    assert samples(client)['emel_failures_total{kind="timeout",model_name="fake"}'] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_times_are_observed_once_for_each_answer(serve: Callable[..., TestClient], stream: bool) -> None:
    client = serve(FakeModel("a", "b", "c"))
    client.post(PATH, json={**CHAT, "stream": stream, "n": 2})
    seen = samples(client)
    assert seen['emel_time_to_first_token_seconds_count{model_name="fake"}'] == 2
    assert seen['emel_request_seconds_count{model_name="fake"}'] == 2
    assert seen['emel_inter_token_seconds_count{model_name="fake"}'] == 4
    assert seen['emel_http_responses_total{path="/v1/chat/completions",status="200"}'] == 1


def test_a_path_with_a_name_in_it_is_told_without_the_frameworks_syntax(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    client.get("/v1/models/fake")
    assert samples(client)['emel_http_responses_total{path="/v1/models/{name}",status="200"}'] == 1


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
    assert line["model"] == "fake"
    assert "error" not in line


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], int, str, str]] = {
    "shape": ({}, {**CHAT, "n": 0}, 400, "invalid_request_error", "n is 0: it must be at least 1"),
    "key": ({"api_keys": ("k",)}, CHAT, 401, "invalid_api_key", "an API key is needed: "),
    "time": ({"request_timeout": 0.05}, CHAT, 504, "timeout_error", "the answer was not ready within 0.05 seconds"),
    "stream": ({"request_timeout": 0.05}, {**CHAT, "stream": True}, 200, "timeout_error", "the answer was not ready"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_the_access_log_says_why_a_request_was_refused_or_broke_off(
    serve: Callable[..., TestClient], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    settings, body, status, code, message = REFUSALS[name]
    client = serve(FakeModel(), **settings)
    with caplog.at_level(logging.INFO, "emel.access"):
        client.post(PATH, json=body)
    [line] = [json.loads(each.message) for each in caplog.records if each.name == "emel.access"]
    assert (line["status"], line["code"]) == (status, code)
    assert line["error"].startswith(message)
    assert line.get("model") == (None if name in ("shape", "key") else "fake")


def test_the_access_log_has_what_is_not_there_and_a_failure_that_nobody_foresaw(
    serve: Callable[..., TestClient], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve({"a": lambda: FakeModel("x"), "b": lambda: FakeModel("x")})
    monkeypatch.setattr(FakeModel, "submit_all", None)
    with caplog.at_level(logging.INFO, "emel.access"):
        client.post(PATH, json={**CHAT, "model": "c" * 1000})
        client.post(PATH, json={**CHAT, "model": "b"})
    absent, failed = [json.loads(each.message) for each in caplog.records if each.name == "emel.access"]
    assert (absent["status"], absent["code"]) == (404, "model_not_found")
    assert len(absent["error"]) < 320
    assert (failed["status"], failed["code"], failed["model"]) == (500, "server_error", "b")
    assert failed["error"] == "the request failed: TypeError"


def test_other_lines_are_json_too() -> None:
    lines, log = io.StringIO(), logging.getLogger("emel.server.of_a_test")
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.propagate = False
    try:
        int("no")
    except ValueError:
        log.exception("it %s", "broke")
    line = json.loads(lines.getvalue())
    assert (line["level"], line["message"]) == ("error", "it broke")
    assert line["trace"].endswith("with base 10: 'no'")
