"""Streams: the same text as a completion, and nothing left behind however they end."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emel
from emel.errors import RequestError
from unit.engine.conftest import N_CTX, n_open
from unit.engine.interrupts import interrupted_runs

if TYPE_CHECKING:
    from emel.graph.batch import Batch
    from unit.engine.conftest import SlowGraph

PROMPT = "to be or not"


SAMPLINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 0.5, 1.0, 5.0]),
        "seed": st.integers(0, 2**64 - 1),
        "max_tokens": st.none() | st.integers(0, 40),
        "stop": st.none()
        | st.text(alphabet="abc eth", min_size=1, max_size=2)
        | st.lists(st.text(min_size=1, max_size=2), max_size=3)
        | st.just(["\ufffd"]),
    }
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.text(min_size=1, max_size=20), sampling=SAMPLINGS)
def test_streamed_text_joined_is_the_text_of_the_completion(
    model: emel.Model, prompt: str, sampling: dict[str, Any]
) -> None:
    whole = model.generate(prompt, **sampling)
    chunks = list(model.stream(prompt, **sampling))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert tuple(token for chunk in chunks for token in chunk.token_ids) == whole.token_ids
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all(chunk.completion is None and chunk.text for chunk in chunks[:-1])
    last = chunks[-1].completion
    assert last is not None
    assert (last.text, last.token_ids, last.finish_reason, last.seed, last.sampling) == (
        whole.text,
        whole.token_ids,
        whole.finish_reason,
        whole.seed,
        whole.sampling,
    )
    assert chunks[-1].finish_reason == whole.finish_reason
    stops = [sampling["stop"]] if isinstance(sampling["stop"], str) else sampling["stop"] or []
    assert not any(stop in whole.text for stop in stops)


def test_stop_text_ends_the_answer_before_it(model: emel.Model) -> None:
    free = model.generate(PROMPT, temperature=0, max_tokens=30)
    assert len(free.text) >= 10
    stop = free.text[4:7]
    cut = free.text.index(stop)
    for stops in (stop, [stop], ("never seen", stop), iter([stop])):
        done = model.generate(PROMPT, temperature=0, max_tokens=30, stop=stops)
        assert (done.text, done.finish_reason) == (free.text[:cut], "stop")
    assert model.generate(PROMPT, temperature=0, max_tokens=30, stop="never seen").text == free.text


def test_text_held_back_for_a_stop_that_does_not_come_is_shown_once(model: emel.Model) -> None:
    free = model.generate(PROMPT, temperature=0, max_tokens=20)
    stop = free.text[-3:] + "never"
    chunks = list(model.stream(PROMPT, temperature=0, max_tokens=20, stop=stop))
    assert "".join(chunk.text for chunk in chunks) == free.text
    assert chunks[-1].text.endswith(free.text[-3:])


def test_stream_is_over_after_the_last_chunk(model: emel.Model) -> None:
    stream = model.stream(PROMPT, temperature=0, max_tokens=3)
    assert iter(stream) is stream
    chunks = list(stream)
    assert n_open(model) == 0
    assert chunks[-1].completion is stream.completion is not None
    assert list(stream) == []
    stream.close()
    assert stream.completion.finish_reason == "length"


def test_stream_is_computed_whether_it_is_read_or_not(model: emel.Model) -> None:
    expected = model.generate(PROMPT, temperature=0, max_tokens=30)
    stream = model.stream(PROMPT, temperature=0, max_tokens=30)
    stream._buffer.is_over.wait(20)
    assert n_open(model) == 0
    assert "".join(chunk.text for chunk in stream) == expected.text


def test_stream_closed_early_keeps_what_was_computed(model: emel.Model) -> None:
    with model.stream(PROMPT, temperature=0) as stream:
        given_text = next(stream).text + next(stream).text
    assert n_open(model) == 0
    assert list(stream) == []
    done = stream.completion
    assert done is not None
    assert done.text.startswith(given_text)
    whole = model.generate(PROMPT, temperature=0, max_tokens=len(done.token_ids)).text
    assert whole in (done.text, f"{done.text}\ufffd")  # a character that was not whole is shown at an end alone


def test_stream_closed_before_it_is_read_is_cancelled(slow: SlowGraph, model: emel.Model) -> None:
    stream = model.stream(PROMPT)
    stream.close()
    stream.close()
    slow.go_on()
    assert list(stream) == []
    assert stream.completion is not None
    assert stream.completion.finish_reason == "cancelled"
    assert len(stream.completion.token_ids) <= 1


def test_stream_is_cancelled_within_one_step(slow: SlowGraph, model: emel.Model) -> None:
    """Closed while a step computes, it is over when that step is; the reader that waits is told."""
    stream = model.stream(PROMPT, temperature=0)
    slow.step(4)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(list, stream)
        stream.close()
        slow.step(1)
        chunks = reader.result(timeout=10)
    assert all(chunk.completion is None for chunk in chunks)
    assert stream.completion is not None
    assert stream.completion.finish_reason == "cancelled"
    assert slow.n_steps <= 5  # of which one may compute a guess besides its token


def test_stream_left_to_be_collected_frees_its_sequence(model: emel.Model) -> None:
    next(model.stream(PROMPT, temperature=0))
    assert n_open(model) == 0
    held: list[Any] = [model.stream(PROMPT, temperature=0)]
    next(held[0])
    held.append(held)
    del held
    gc.collect()
    assert n_open(model) == 0


def test_stream_collected_on_the_compute_thread_in_the_midst_of_a_step(
    model: emel.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = model.engine.wave.context
    alone = model.generate("other", temperature=0, max_tokens=5)
    lost: list[emel.Stream] = []
    graph = context.graph

    class Graph:
        @staticmethod
        def compute(batch: Batch) -> None:
            lost.clear()  # drops the last reference
            graph.compute(batch)

    monkeypatch.setattr(context, "graph", Graph)
    lost.append(model.stream(PROMPT, temperature=0))
    assert model.generate("other", temperature=0, max_tokens=5).text == alone.text
    assert n_open(model) == 0


def test_stream_outlives_the_model_that_nobody_holds(tiny_path: Any) -> None:
    stream = emel.load(tiny_path, n_threads=1).stream(PROMPT, max_tokens=4, temperature=0)
    gc.collect()
    assert len("".join(chunk.text for chunk in stream)) > 0
    stream._request.session.close()


def test_many_threads_get_the_texts_they_would_get_alone(model: emel.Model) -> None:
    prompts = [f"{'x' * (index % 7)} number {index}" for index in range(20)]
    options: list[dict[str, Any]] = [
        {"max_tokens": 8 + index % 5, "seed": index, "temperature": index % 3} for index in range(20)
    ]
    alone = [model.generate(prompt, **each) for prompt, each in zip(prompts, options, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(model.generate, prompt, **each) for prompt, each in zip(prompts, options, strict=True)]
        together = [future.result(timeout=60) for future in futures]
    assert [done.token_ids for done in together] == [done.token_ids for done in alone]
    assert [done.text for done in together] == [done.text for done in alone]


def test_streams_read_in_turns_by_one_thread_equal_their_solo_texts(model: emel.Model) -> None:
    prompts = [f"stream {index}" for index in range(8)]
    alone = [model.generate(prompt, temperature=0, max_tokens=6 + index).text for index, prompt in enumerate(prompts)]
    streams = [model.stream(prompt, temperature=0, max_tokens=6 + index) for index, prompt in enumerate(prompts)]
    texts = [""] * 8
    while any(stream.completion is None for stream in streams):
        for index, stream in enumerate(streams):
            texts[index] += next(stream).text if stream.completion is None else ""
    assert texts == alone


def test_stream_read_by_several_threads_gives_every_chunk_once(model: emel.Model) -> None:
    alone = model.generate(PROMPT, temperature=0, max_tokens=30)
    stream = model.stream(PROMPT, temperature=0, max_tokens=30)
    with ThreadPoolExecutor(3) as pool:
        parts = [future.result(timeout=20) for future in [pool.submit(list, stream) for _ in range(3)]]
    tokens = [token for part in parts for chunk in part for token in chunk.token_ids]
    assert sorted(tokens) == sorted(alone.token_ids)
    assert stream.completion is not None
    assert stream.completion.text == alone.text


class FailingGraph:
    """Computes, but fails at the n-th batch."""

    def __init__(self, graph: Any, at: int, error: Exception) -> None:
        self._compute, self._left, self._error = graph.compute, at, error

    def compute(self, batch: Batch) -> None:
        self._left -= 1
        if self._left == 0:
            raise self._error
        self._compute(batch)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("seen this"), "seen this"),
        (RuntimeError("refused that"), "refused that"),
        (MemoryError("cannot allocate 7 bytes"), "not enough memory: cannot allocate 7 bytes"),
        (MemoryError(), "not enough memory: the system has no more"),
    ],
)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_failed_step_of_one_request_ends_it(
    model: emel.Model, monkeypatch: pytest.MonkeyPatch, at: int, error: Exception, text: str
) -> None:
    context = model.engine.wave.context
    with monkeypatch.context() as patch:
        patch.setattr(context, "graph", FailingGraph(context.graph, at, error))
        stream = model.stream("another", temperature=0, max_tokens=12)
        with pytest.raises(RequestError) as caught:
            list(stream)
    assert str(caught.value) == text
    assert caught.value.__cause__ is error
    assert stream.completion is None
    assert list(stream) == []
    assert n_open(model) == 0


def interrupt_soon() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_interrupt_while_reading_cancels_the_request(slow: SlowGraph, model: emel.Model) -> None:
    stream = model.stream(PROMPT, temperature=0)
    slow.step(1)
    next(stream)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    slow.go_on()
    assert stream.completion is not None
    assert stream.completion.finish_reason == "cancelled"


def test_interrupt_while_waiting_for_a_completion_cancels_it(slow: SlowGraph, model: emel.Model) -> None:
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        model.generate(PROMPT)
    slow.go_on()
    assert n_open(model) == 0
    assert model.wave.counters.n_cancelled > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in __del__ goes nowhere
def test_interrupt_anywhere_leaves_the_model_usable(model: emel.Model) -> None:
    """The thread that asks, cut off at one place after the other; steps are made by another."""
    prompt = "0123456789abcdef0123456789"

    def action() -> None:
        model.generate(prompt, max_tokens=8, seed=1)

    alone = model.generate(prompt, max_tokens=8, seed=1).token_ids
    n_runs = 0
    for _ in interrupted_runs(action, "emel/engine", "emel/text/"):
        n_runs += 1
        assert n_open(model) == 0
        if n_runs % 16 == 0:
            assert model.generate(prompt, max_tokens=8, seed=1).token_ids == alone
    assert n_runs > 50


def test_context_that_fills_up_is_length(model: emel.Model) -> None:
    for seed in range(50):
        done = model.generate("x" * (N_CTX - 3), temperature=5.0, top_k=0, top_p=1, min_p=0, seed=seed)
        assert len(done.token_ids) <= 3
        if done.finish_reason == "length":
            assert len(done.token_ids) == 3
            return
    raise AssertionError("every answer ended by itself")


def test_prompt_and_answer_are_no_longer_than_the_context(model: emel.Model) -> None:
    for n in (N_CTX, N_CTX - 1, N_CTX - 2):
        done = model.generate_ids([65] * n, temperature=0, ignore_eos=True)
        assert (len(done.token_ids), done.finish_reason) == (N_CTX - n, "length")


def test_timings_add_up(model: emel.Model) -> None:
    done = model.generate(PROMPT, temperature=0, max_tokens=4)
    timings = done.timings
    assert (timings.n_prompt_tokens, timings.n_tokens) == (len(model.tokenize(PROMPT)), 4)
    assert 0 < timings.prefill_seconds <= timings.time_to_first_token
    assert timings.decode_seconds > 0
    assert timings.prefill_tokens_per_second == timings.n_prompt_tokens / timings.prefill_seconds
    assert timings.decode_tokens_per_second == 3 / timings.decode_seconds
    nothing = model.generate(PROMPT, max_tokens=0).timings
    assert (nothing.n_tokens, nothing.decode_seconds, nothing.time_to_first_token) == (0, 0, 0)
    assert (nothing.decode_tokens_per_second, nothing.prefill_seconds > 0) == (0, True)
