"""GET /metrics: what the waves do, for Prometheus; llama.cpp's names beside our own, for dashboards that have them.

The wave counts by itself; its counters are read when somebody asks. Only times are observed as answers come.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from starlette.requests import Request

    from emel.engine.results import Chunk
    from emel.engine.wave import Wave
    from emel.server.served import ServedModels
    from emel.server.served_model import ServedModel

_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LABEL = ["model_name"]

# Metric, what it tells, and the field of the wave's view or counters that it shows.
_GAUGES = (
    ("emel_requests_running", "Requests that have a lane", "n_running"),
    ("emel_requests_waiting", "Requests that wait for a lane", "n_waiting"),
    ("emel_lanes", "Requests that can run at a time", "n_lanes"),
    ("emel_kv_blocks", "Blocks of keys and values", "n_blocks"),
    ("emel_kv_blocks_in_use", "Blocks that running requests hold", "n_blocks_in_use"),
    ("llamacpp:requests_processing", "The same as emel_requests_running", "n_running"),
    ("llamacpp:requests_deferred", "The same as emel_requests_waiting", "n_waiting"),
)
_COUNTERS = (
    ("emel_prompt_tokens", "Tokens of admitted prompts", "n_prompt_tokens"),
    ("emel_cached_tokens", "Of them, those an earlier request had computed", "n_cached_tokens"),
    ("emel_generated_tokens", "Tokens of answers", "n_generated_tokens"),
    ("emel_steps", "Passes over the weights", "n_steps"),
    ("emel_failed_steps", "Passes that failed", "n_failed_steps"),
    ("emel_lanes_busy", "Lanes that computed, summed over the steps", "n_lanes_busy"),
    ("emel_preemptions", "Requests that gave their memory up for others", "n_preempted"),
    ("llamacpp:prompt_tokens", "The same as emel_prompt_tokens", "n_prompt_tokens"),
    ("llamacpp:tokens_predicted", "The same as emel_generated_tokens", "n_generated_tokens"),
    ("llamacpp:n_decode", "The same as emel_steps", "n_steps"),
)
_ENDS = {"stop": "n_stopped", "length": "n_length", "cancelled": "n_cancelled", "failed": "n_failed"}


class Metrics:
    """The metrics of a server."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        self.registry = CollectorRegistry()
        self.registry.register(self)
        histogram = partial(Histogram, labelnames=_LABEL, registry=self.registry)
        counter = partial(Counter, labelnames=_LABEL, registry=self.registry)
        self._first_token = histogram(
            "emel_time_to_first_token_seconds", "From submission to the first token", buckets=_FIRST_TOKEN
        )
        self._between = histogram("emel_inter_token_seconds", "Between two parts of an answer", buckets=_BETWEEN)
        self._queue = histogram("emel_queue_seconds", "From submission to a lane", buckets=_FIRST_TOKEN)
        self._whole = histogram("emel_request_seconds", "From submission to the end", buckets=_WHOLE)
        self._prompt_seconds = counter("llamacpp:prompt_seconds", "Seconds of reading prompts")
        self._answer_seconds = counter("llamacpp:tokens_predicted_seconds", "Seconds of writing answers")
        self.responses = Counter(
            "emel_http_responses", "HTTP responses", labelnames=["path", "status"], registry=self.registry
        )

    def collect(self) -> Iterator[Metric]:
        """What the waves say now (prometheus_client's interface)."""
        loaded = [each for each in self._models if each.is_loaded]
        for name, text, field in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_LABEL)
            for served in loaded:
                gauge.add_metric([served.name], _of_view(served.model.wave, field))
            yield gauge
        for name, text, field in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_LABEL)
            for served in loaded:
                counter.add_metric([served.name], getattr(served.model.wave.counters, field))
            yield counter
        yield from self._others(loaded)

    def _others(self, loaded: list[ServedModel]) -> Iterator[Metric]:
        ends = CounterMetricFamily("emel_requests_finished", "Requests by how they ended", labels=[*_LABEL, "reason"])
        busy = GaugeMetricFamily("llamacpp:n_busy_slots_per_decode", "Lanes of a mean step", labels=_LABEL)
        threads = GaugeMetricFamily("emel_threads", "Threads that compute", labels=_LABEL)
        for served in loaded:
            counters = served.model.wave.counters
            for reason, field in _ENDS.items():
                ends.add_metric([served.name, reason], getattr(counters, field))
            busy.add_metric([served.name], counters.n_lanes_busy / max(1, counters.n_steps))
            threads.add_metric([served.name], served.model.n_threads)
        yield from (ends, busy, threads)
        if (memory := self._models.memory) is not None:
            granted = GaugeMetricFamily("emel_memory_granted_bytes", "Bytes of the shared budget", labels=_LABEL)
            for each in self._models:
                granted.add_metric([each.name], memory.granted_to(each.name))
            yield granted
            yield GaugeMetricFamily("emel_memory_budget_bytes", "Bytes that all models share", value=memory.n_bytes)

    def observer(self, model_name: str) -> Observer:
        """What observes one answer of a model."""
        return Observer(self, model_name)

    def ended(self, model_name: str, chunk: Chunk) -> None:
        """An answer is whole."""
        assert chunk.completion is not None
        t = chunk.completion.timings
        self._queue.labels(model_name).observe(t.queue_seconds)
        self._whole.labels(model_name).observe(t.queue_seconds + t.prefill_seconds + t.decode_seconds)
        self._prompt_seconds.labels(model_name).inc(t.prefill_seconds)
        self._answer_seconds.labels(model_name).inc(t.decode_seconds)
        if t.n_tokens:
            self._first_token.labels(model_name).observe(t.time_to_first_token)

    def between(self, model_name: str) -> Histogram:
        """The times between parts of answers of a model."""
        return self._between.labels(model_name)


class Observer:
    """Watches one answer come."""

    __slots__ = ("_between", "_last", "_metrics", "_model_name")

    def __init__(self, metrics: Metrics, model_name: str) -> None:
        self._metrics = metrics
        self._model_name = model_name
        self._between = metrics.between(model_name)
        self._last = 0.0

    def see(self, chunk: Chunk) -> None:
        """A chunk came."""
        now = time.perf_counter()
        if self._last and chunk.token_ids:
            self._between.observe(now - self._last)
        self._last = now
        if chunk.completion is not None:
            self._metrics.ended(self._model_name, chunk)


async def get_metrics(request: Request) -> Response:
    """The endpoint."""
    metrics: Metrics = request.app.state.metrics
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _of_view(wave: Wave, field: str) -> float:
    view = wave.snapshot()
    counts = {"n_running": len(view.lanes), "n_waiting": len(view.waiting)}
    return float(counts[field] if field in counts else getattr(view, field))
