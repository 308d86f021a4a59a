"""What waves count by themselves, as metrics; read when somebody asks. Own names, then llama.cpp's for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from emel.engine.model import Model
    from emel.server.served import ServedModels

LABEL = ["model_name"]

# Metric, what it tells, and the fact of a loaded model (facts_of), or the count of any (WaveCounts), that it shows.
_GAUGES = (
    ("emel_requests_running", "Requests that have a lane", "n_running"),
    ("emel_requests_waiting", "Requests that wait for a lane", "n_waiting"),
    ("emel_lanes", "Requests that can run at a time", "n_lanes"),
    ("emel_kv_blocks", "Blocks of keys and values", "n_blocks"),
    ("emel_kv_blocks_in_use", "Blocks that running requests hold", "n_blocks_in_use"),
    ("emel_threads", "Threads that compute", "n_threads"),
    ("llamacpp:requests_processing", "The same as emel_requests_running", "n_running"),
    ("llamacpp:requests_deferred", "The same as emel_requests_waiting", "n_waiting"),
    ("llamacpp:n_busy_slots_per_decode", "Lanes of a mean step", "lanes_of_a_step"),
)
_COUNTERS = (
    ("emel_prompt_tokens", "Tokens of admitted prompts", "n_prompt_tokens"),
    ("emel_cached_tokens", "Of them, those an earlier request had computed", "n_cached_tokens"),
    ("emel_generated_tokens", "Tokens of answers", "n_generated_tokens"),
    ("emel_steps", "Passes over the weights", "n_steps"),
    ("emel_failed_steps", "Passes that failed", "n_failed_steps"),
    ("emel_lanes_busy", "Lanes that computed, summed over the steps", "n_lanes_busy"),
    ("emel_preemptions", "Requests that gave their memory up for others", "n_preempted"),
    ("emel_prefix_lookups", "Prompts that were looked for among computed ones", "n_lookups"),
    ("emel_prefix_hits", "Of them, those of which at least one block was found", "n_hits"),
    ("emel_prefix_blocks_evicted", "Blocks of computed prompts that made room", "n_evicted"),
    ("emel_drafts", "Steps of a request that computed guesses too", "n_drafts"),
    ("emel_draft_tokens", "Tokens that were computed as guesses", "n_draft_tokens"),
    ("emel_accepted_tokens", "Of them, those that came", "n_accepted_tokens"),
    ("emel_streamed_bytes", "Bytes of weights that were read from the file while it was streamed", "n_streamed_bytes"),
    ("emel_streaming_wait_seconds", "Seconds in which steps waited for them", "streaming_wait_seconds"),
    ("llamacpp:prompt_tokens", "Tokens of prompts that were computed", "n_computed_prompt_tokens"),
    ("llamacpp:tokens_predicted", "The same as emel_generated_tokens", "n_generated_tokens"),
    ("llamacpp:n_decode", "The same as emel_steps", "n_steps"),
    ("llamacpp:spec_decode_num_drafts", "The same as emel_drafts", "n_drafts"),
    ("llamacpp:spec_decode_num_draft_tokens", "The same as emel_draft_tokens", "n_draft_tokens"),
    ("llamacpp:spec_decode_num_accepted_tokens", "The same as emel_accepted_tokens", "n_accepted_tokens"),
)
_ENDS = {"stop": "n_stopped", "length": "n_length", "cancelled": "n_cancelled", "failed": "n_failed"}


def collect(models: ServedModels) -> Iterator[Metric]:
    """What is, of the models that are loaded; what was counted, of all; and of the memory they share."""
    facts = {each.name: facts_of(each.model) for each in models if each.is_loaded}
    for name, text, fact in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=LABEL)
        for model_name, of_model in facts.items():
            gauge.add_metric([model_name], of_model[fact])
        yield gauge
    counts = {each.name: each.counts() for each in models}
    for name, text, fact in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=LABEL)
        for model_name, counted in counts.items():
            counter.add_metric([model_name], counted[fact])
        yield counter
    ends = CounterMetricFamily("emel_requests_finished", "Requests by how they ended", labels=[*LABEL, "reason"])
    for model_name, counted in counts.items():
        for reason, fact in _ENDS.items():
            ends.add_metric([model_name, reason], counted[fact])
    yield ends
    if (memory := models.memory) is not None:
        yield GaugeMetricFamily("emel_memory_budget_bytes", "Bytes that all models share", memory.n_bytes)
        granted = GaugeMetricFamily("emel_memory_granted_bytes", "Of them, those a model has", labels=LABEL)
        for each in models:
            granted.add_metric([each.name], memory.granted_to(each.name))
        yield granted


def facts_of(model: Model) -> dict[str, float]:
    """Numbers by name: what runs now, and what there is for it."""
    wave = model.wave
    view, counters = wave.snapshot(), wave.counters
    return {
        "n_running": len(view.lanes),
        "n_waiting": len(view.waiting),
        "n_lanes": view.n_lanes,
        "n_blocks": view.n_blocks,
        "n_blocks_in_use": view.n_blocks_in_use,
        "n_threads": model.n_threads,
        "lanes_of_a_step": counters.n_lanes_busy / max(1, counters.n_steps),
    }
