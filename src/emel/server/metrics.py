"""GET /metrics: what the waves do, for Prometheus; llama.cpp's names beside our own, for dashboards that have them.

The wave counts by itself; its counters are read when somebody asks (emel.server.wave_metrics). Only times and failures
are observed as answers come.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString
from starlette.responses import Response

from emel.lazy_dataclasses import dataclass
from emel.server import wave_metrics
from emel.server.errors import FAILURE_KINDS, kind_of_failure
from emel.server.wave_metrics import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric
    from starlette.requests import Request

    from emel.engine.results import Chunk, Timings
    from emel.server.served import ServedModels

_FIRST_TOKEN = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BETWEEN = (
    0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1,
    0.15, 0.25, 0.5, 1, 2.5,
)  # fmt: skip
_WHOLE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


@dataclass(slots=True)
class _Sums:
    """Tokens and seconds of all answers of a model."""

    n_longest: int = 0
    n_read: int = 0
    read_seconds: float = 0.0
    n_written: int = 0
    write_seconds: float = 0.0

    def add(self, t: Timings) -> None:
        self.n_longest = max(self.n_longest, t.n_prompt_tokens + t.n_tokens)
        self.n_read += t.n_prompt_tokens - t.n_cached_tokens
        self.read_seconds += t.prefill_seconds
        self.n_written += max(0, t.n_tokens - 1)  # the first is the prompt's
        self.write_seconds += t.decode_seconds


class _Intervals:
    """Times between parts of answers of a model: of each token one, so counted with less ado than Histogram does."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._counts = [0] * (len(_BETWEEN) + 1)

    def add(self, seconds: float) -> None:
        """Counts one."""
        self.seconds += seconds
        self._counts[bisect_left(_BETWEEN, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds, and how many times were not longer."""
        return list(zip([*map(floatToGoString, _BETWEEN), "+Inf"], itertools.accumulate(self._counts), strict=True))


class Metrics:
    """The metrics of a server."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models
        self.registry = CollectorRegistry()
        self.registry.register(self)
        histogram = partial(Histogram, labelnames=LABEL, registry=self.registry)
        counter = partial(Counter, labelnames=LABEL, registry=self.registry)
        self._first_token = histogram(
            "emel_time_to_first_token_seconds", "From submission to the first token", buckets=_FIRST_TOKEN
        )
        self._between: defaultdict[str, _Intervals] = defaultdict(_Intervals)
        self._queue = histogram("emel_queue_seconds", "From submission to a lane", buckets=_FIRST_TOKEN)
        self._whole = histogram("emel_request_seconds", "From submission to the end", buckets=_WHOLE)
        self._failures = Counter(
            "emel_failures",
            "Requests that failed, by kind",
            labelnames=[*LABEL, "kind"],
            registry=self.registry,
        )
        self._sums: defaultdict[str, _Sums] = defaultdict(_Sums)
        self._prompt_seconds = counter("llamacpp:prompt_seconds", "Seconds of reading prompts")
        self._answer_seconds = counter("llamacpp:tokens_predicted_seconds", "Seconds of writing answers")
        self.responses = Counter(
            "emel_http_responses", "HTTP responses", labelnames=["path", "status"], registry=self.registry
        )
        for each in models:
            self._begin(each.name)

    def _begin(self, model_name: str) -> None:
        """What counts from 0 is told from the start: else the first failure would be no increase."""
        for kind in FAILURE_KINDS:
            self._failures.labels(model_name, kind)
        for each in (self._first_token, self._queue, self._whole, self._prompt_seconds, self._answer_seconds):
            each.labels(model_name)
        self._between[model_name] = _Intervals()
        self._sums[model_name] = _Sums()

    def collect(self) -> Iterator[Metric]:
        """What the waves say now (prometheus_client's interface)."""
        yield from wave_metrics.collect(self._models)
        longest = GaugeMetricFamily("llamacpp:n_tokens_max", "Tokens of the longest request", labels=LABEL)
        read = GaugeMetricFamily("llamacpp:prompt_tokens_seconds", "Tokens of prompts a second", labels=LABEL)
        written = GaugeMetricFamily("llamacpp:predicted_tokens_seconds", "Tokens of an answer a second", labels=LABEL)
        for name, sums in self._sums.items():
            longest.add_metric([name], sums.n_longest)
            read.add_metric([name], sums.n_read / sums.read_seconds if sums.read_seconds else 0)
            written.add_metric([name], sums.n_written / sums.write_seconds if sums.write_seconds else 0)
        yield from (longest, read, written)
        between = HistogramMetricFamily("emel_inter_token_seconds", "Between two parts of an answer", labels=LABEL)
        for name, intervals in self._between.items():
            between.add_metric([name], intervals.buckets(), intervals.seconds)
        yield between

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
        self._sums[model_name].add(t)
        if t.n_tokens:
            self._first_token.labels(model_name).observe(t.time_to_first_token)

    def failed(self, model_name: str, error: Exception) -> None:
        """An answer broke off."""
        self._failures.labels(model_name, kind_of_failure(error)).inc()

    def between(self, model_name: str) -> _Intervals:
        """The times between parts of answers of a model."""
        return self._between[model_name]


class Observer:
    """Watches one answer come."""

    __slots__ = ("_add_interval", "_last", "_metrics", "_model_name")

    def __init__(self, metrics: Metrics, model_name: str) -> None:
        self._metrics = metrics
        self._model_name = model_name
        self._add_interval = metrics.between(model_name).add
        self._last = 0.0

    def see(self, chunk: Chunk) -> None:
        """A chunk came."""
        now = time.perf_counter()
        if self._last and chunk.token_ids:
            self._add_interval(now - self._last)
        self._last = now
        if chunk.completion is not None:
            self._metrics.ended(self._model_name, chunk)

    def fail(self, error: Exception) -> None:
        """The answer broke off."""
        self._metrics.failed(self._model_name, error)


async def get_metrics(request: Request) -> Response:
    """The endpoint."""
    metrics: Metrics = request.app.state.metrics
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)
