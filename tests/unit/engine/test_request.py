"""Streams: the same text as a completion, and nothing left behind however they end."""

from __future__ import annotations

import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emel
from emel.engine.request import Request, complete
from emel.errors import RequestError
from emel.text.generator import Advance
from emel.text.sampling import SamplingParams
from unit.engine.conftest import N_CTX
from unit.engine.interrupts import interrupted_runs

if TYPE_CHECKING:
    from emel.engine.session import Session
    from emel.graph.batch import Batch

PROMPT = "to be or not"


def n_open(session: Session) -> int:
    """Sequences in use, by the seats and by the cache's rows, which must agree."""
    rows = sum(state is not None for state in session.cache._sequences)
    assert rows == len(session.seats)
    return rows


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


def test_stream_starts_when_it_is_read_and_is_over_after_the_last_chunk(model: emel.Model) -> None:
    stream = model.stream(PROMPT, max_tokens=3)
    assert n_open(model.session) == 0
    assert stream.completion is None
    assert iter(stream) is stream
    chunks = list(stream)
    assert n_open(model.session) == 0
    assert chunks[-1].completion is stream.completion is not None
    assert list(stream) == []
    stream.close()
    assert stream.completion.finish_reason == "length"


def test_stream_closed_early_keeps_what_it_gave(model: emel.Model) -> None:
    with model.stream(PROMPT, temperature=0) as stream:
        given_chunks = [next(stream), next(stream)]
        assert n_open(model.session) == 1
    assert n_open(model.session) == 0
    assert list(stream) == []
    done = stream.completion
    assert done is not None
    assert done.finish_reason == "cancelled"
    assert done.text == "".join(chunk.text for chunk in given_chunks)
    assert done.text == model.generate(PROMPT, temperature=0, max_tokens=len(done.token_ids)).text


def test_stream_closed_before_it_is_read_computes_nothing(model: emel.Model) -> None:
    stream = model.stream(PROMPT)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert stream.completion is not None
    assert (stream.completion.token_ids, stream.completion.finish_reason) == ((), "cancelled")


def test_stream_closed_by_another_thread_ends_within_a_step(model: emel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closer comes while a step computes; it is over when that step is."""
    session = model.session
    computing, compute = threading.Event(), session.graph.compute
    n_steps = 0

    def slow(batch: Batch) -> None:
        nonlocal n_steps
        n_steps += 1
        if n_steps == 5:
            computing.set()
            while not may_go.wait(0.01):
                pass
        compute(batch)

    class Graph:
        compute = staticmethod(slow)

    may_go = threading.Event()
    monkeypatch.setattr(session, "graph", Graph)
    stream = model.stream(PROMPT, temperature=0)
    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(list, stream)
        assert computing.wait(10)
        closer = pool.submit(stream.close)
        may_go.set()
        closer.result(timeout=10)
        assert n_open(session) == 0
        chunks = reader.result(timeout=10)
    assert n_steps <= 6  # the reader may have had one more turn before the closer's
    assert all(chunk.completion is None for chunk in chunks)
    assert stream.completion is not None
    assert stream.completion.finish_reason == "cancelled"


def test_stream_left_to_be_collected_frees_its_sequence(model: emel.Model) -> None:
    next(model.stream(PROMPT, temperature=0))
    assert n_open(model.session) == 0
    held: list[Any] = [model.stream(PROMPT, temperature=0)]
    next(held[0])
    held.append(held)
    assert n_open(model.session) == 1
    del held
    gc.collect()
    assert n_open(model.session) == 0


def test_stream_collected_in_the_midst_of_a_step_frees_its_sequence_after_it(
    model: emel.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = model.session
    lost = [model.stream(PROMPT, temperature=0)]
    next(lost[0])
    compute = session.graph.compute

    class Graph:
        @staticmethod
        def compute(batch: Batch) -> None:
            n_before = n_open(session)
            lost.clear()  # drops the last reference
            assert n_open(session) == n_before
            compute(batch)

    alone = model.generate("other", temperature=0, max_tokens=5)
    monkeypatch.setattr(session, "graph", Graph)
    assert model.generate("other", temperature=0, max_tokens=5).text == alone.text
    assert n_open(session) == 0


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

    def __init__(self, session: Session, at: int, error: BaseException) -> None:
        self._compute, self._left, self._error = session.graph.compute, at, error

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
def test_failed_step_ends_that_request_alone(
    model: emel.Model, monkeypatch: pytest.MonkeyPatch, at: int, error: Exception, text: str
) -> None:
    session = model.session
    alone = model.generate(PROMPT, temperature=0, max_tokens=12)
    other = model.stream(PROMPT, temperature=0, max_tokens=12)
    head = next(other).text
    with monkeypatch.context() as patch:
        patch.setattr(session, "graph", FailingGraph(session, at, error))
        stream = model.stream("another", temperature=0, max_tokens=12)
        with pytest.raises(RequestError) as caught:
            list(stream)
    assert str(caught.value) == text
    assert caught.value.__cause__ is error
    assert stream.completion is None
    assert list(stream) == []
    assert n_open(session) == 1
    assert head + "".join(chunk.text for chunk in other) == alone.text


@pytest.mark.parametrize("at", [1, 2, 3])
def test_interrupted_step_cancels_the_request(model: emel.Model, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    alone = model.generate(PROMPT, temperature=0, max_tokens=5)
    with monkeypatch.context() as patch:
        patch.setattr(model.session, "graph", FailingGraph(model.session, at, KeyboardInterrupt()))
        stream = model.stream(PROMPT, temperature=0, max_tokens=5)
        with pytest.raises(KeyboardInterrupt):
            list(stream)
    assert n_open(model.session) == 0
    assert stream.completion is not None
    assert stream.completion.finish_reason == "cancelled"
    assert model.generate(PROMPT, temperature=0, max_tokens=5).text == alone.text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in __del__ goes nowhere
def test_interrupt_anywhere_leaves_the_model_usable(model: emel.Model) -> None:
    """A request with two chunks' worth of blocks, cut off at one place after the other."""
    session = model.session
    prompt = "0123456789abcdef0123456789"

    def action() -> None:
        model.generate(prompt, max_tokens=8, seed=1)

    alone = model.generate(prompt, max_tokens=8, seed=1).token_ids
    n_runs = 0
    for _ in interrupted_runs(action, "emel/engine", "emel/memory", "emel/text/", "emel/graph", "emel/sm"):
        n_runs += 1
        assert n_open(session) == 0
        assert session.turns.run(lambda: session.cache.pool.n_free) == session.cache.n_blocks
        if n_runs % 16 == 0:
            assert model.generate(prompt, max_tokens=8, seed=1).token_ids == alone
    assert n_runs > 200


def test_thread_with_all_streams_open_is_refused_another(model: emel.Model) -> None:
    streams = [model.stream(f"stream {index}", temperature=0) for index in range(8)]
    for stream in streams:
        next(stream)
    with pytest.raises(RequestError, match="8 streams are unfinished, as many as a model runs at once") as caught:
        model.generate(PROMPT)
    assert caught.value.hint == "read one to its end, or close it"
    with pytest.raises(RequestError, match="8 streams are unfinished"):
        model.logits([1, 2])
    streams[3].close()
    assert model.generate(PROMPT, max_tokens=2).finish_reason
    for stream in streams:
        stream.close()


def test_threads_that_wait_for_each_other_are_told(model: emel.Model) -> None:
    """Four streams each, and both want a fifth: the second to ask is refused, and the first gets it then."""
    both_hold = threading.Barrier(2, timeout=20)

    def work() -> str:
        streams = [model.stream(PROMPT, temperature=0) for _ in range(4)]
        for stream in streams:
            next(stream)
        both_hold.wait()
        try:
            return model.generate(PROMPT, temperature=0, max_tokens=2).text
        except RequestError:
            return "refused"
        finally:
            for stream in streams:
                stream.close()

    expected = model.generate(PROMPT, temperature=0, max_tokens=2).text
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(work) for _ in range(2)]
        texts = [future.result(timeout=20) for future in futures]
    assert expected in texts
    assert set(texts) <= {expected, "refused"}


def test_request_waits_for_a_sequence_of_another_thread(model: emel.Model) -> None:
    streams = [model.stream(PROMPT, temperature=0) for _ in range(8)]
    for stream in streams:
        next(stream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.generate, PROMPT, temperature=0, max_tokens=2)
        while len(model.session._waiting) != 1:
            pass
        assert not waiting.done()
        streams[0].close()
        assert waiting.result(timeout=20).finish_reason == "length"
    for stream in streams:
        stream.close()


def test_stream_that_waits_for_a_sequence_can_be_closed(model: emel.Model) -> None:
    streams = [model.stream(PROMPT, temperature=0) for _ in range(8)]
    for stream in streams:
        next(stream)
    extra = model.stream(PROMPT)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, extra)
        while len(model.session._waiting) != 1:
            pass
        extra.close()
        assert reading.result(timeout=20) == []
    for stream in streams:
        stream.close()


def test_context_that_fills_up_is_length(model: emel.Model) -> None:
    for seed in range(50):
        done = model.generate("x" * (N_CTX - 3), temperature=5.0, top_k=0, top_p=1, min_p=0, seed=seed)
        assert len(done.token_ids) <= 4
        if done.finish_reason == "length":
            assert len(done.token_ids) == 4  # the last one is not computed with any more
            return
    raise AssertionError("every answer ended by itself")


def test_prompt_as_long_as_the_context_gives_one_token(model: emel.Model) -> None:
    assert len(model.generate("x" * N_CTX, temperature=0).token_ids) == 1


def test_decode_step_leaves_no_object_behind(model: emel.Model) -> None:
    """But for the answer itself: its ids here are small integers, which exist already."""
    session = model.session
    request = Request(session, model.tokenize(PROMPT), SamplingParams(temperature=0, max_tokens=60))
    request.start()
    machine, context = request._machine, request._context

    def step() -> None:
        context.token_ids[-1:] = [7]  # a letter, whatever the model wants; no text, id or row that is new
        machine.dispatch(Advance())

    session.turns.run(request.advance)
    gc.collect()
    gc.disable()
    try:
        for _ in range(8):
            session.turns.run(step)
        before = sys.getallocatedblocks()
        for _ in range(40):
            session.turns.run(step)
        grown = sys.getallocatedblocks() - before
    finally:
        gc.enable()
        session.turns.soon(request.cancel)
    assert len(context.token_ids) == 49
    assert grown <= 8  # two more blocks of the cache; lists that grew


def test_request_that_cannot_begin_says_why(model: emel.Model) -> None:
    """The API checks prompts before; whoever builds a request directly is told by the machine."""
    request = Request(model.session, [1] * (N_CTX + 1), SamplingParams())
    with pytest.raises(RequestError, match=f"the prompt has {N_CTX + 1} tokens, the context holds {N_CTX}"):
        complete(request)
    assert request.is_over
    assert n_open(model.session) == 0


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
