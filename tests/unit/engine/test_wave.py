"""Requests in one wave: prefixes, counters, priorities, what listeners and steps that fail do to the others."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.text.waiting import WaitingLine
from emel.text.wavefront import State
from unit.engine.conftest import N_CTX, n_open

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emel.graph.batch import Batch
    from unit.engine.conftest import SlowGraph


class Recorder:
    """Listens, and notes the logits every token was chosen from."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.completion: emel.Completion | None = None
        self.is_over = threading.Event()

    def on_chunk(self, chunk: emel.Chunk) -> None:
        self.tokens += chunk.token_ids

    def on_end(self, completion: emel.Completion) -> None:
        self.completion = completion
        self.is_over.set()

    def on_failure(self, error: Exception) -> None:
        raise error


def random_request(random: Random) -> tuple[list[int], dict[str, Any]]:
    beginning = Random(random.randrange(3)).choices(range(1, 257), k=48)
    tail = random.choices(range(1, 257), k=random.randint(1, 20))
    prompt = beginning[: random.choice((0, 16, 20, 48))] + tail
    options: dict[str, Any] = {
        "temperature": random.choice((0, 0, 1.0, 3.0)),
        "seed": random.randrange(2**32),
        "max_tokens": random.choice((1, 5, 12, 24)),
        "cache_prompt": random.random() < 0.8,
        "logprobs": 2,
    }
    return prompt, options


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    """Text, tokens and log probabilities: the latter are equal only if the logits are, to the last bit."""
    return completion.text, completion.token_ids, completion.finish_reason, completion.logprobs


def test_preempted_lanes_equal_their_solo_runs(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.engine.memory.USUAL_TOKENS", 1)
    with emel.load(tiny_path, n_lanes=6, n_threads=2) as model:
        drawn = [random_request(Random(seed)) for seed in range(16)]
        requests = [(ids[:20], {**options, "max_tokens": 70}) for ids, options in drawn]
        alone = [model.generate_ids(ids, **options) for ids, options in requests]
        together = [Recorder() for _ in requests]

        def submit_all() -> None:
            for recorder, (ids, options) in zip(together, requests, strict=True):
                model.submit(ids, recorder, **options)

        # Between two steps, so that they are in each other's way however slow this machine is.
        model.engine.between_steps(submit_all)
        for recorder, expected in zip(together, alone, strict=True):
            assert recorder.is_over.wait(300)
            assert recorder.completion is not None
            assert outcome(recorder.completion) == outcome(expected)
        assert model.wave.counters.n_preempted > 0
        assert n_open(model) == 0


def test_prefix_of_an_earlier_request_is_not_computed_again(model: emel.Model) -> None:
    prompt = "a prefix of its own, of more than three blocks of 16"
    cold = model.generate(prompt, temperature=0, max_tokens=8, logprobs=3)
    warm = model.generate(prompt, temperature=0, max_tokens=8, logprobs=3)
    private = model.generate(prompt, temperature=0, max_tokens=8, logprobs=3, cache_prompt=False)
    assert (cold.n_cached_tokens, warm.n_cached_tokens, private.n_cached_tokens) == (0, 48, 0)
    assert warm.timings.n_cached_tokens == 48
    assert outcome(cold) == outcome(warm) == outcome(private)
    hidden = "another prefix that nobody else may find in the cache"
    model.generate(hidden, max_tokens=1, cache_prompt=False)
    assert model.generate(hidden, max_tokens=1).n_cached_tokens == 0


def test_prefix_is_found_again_after_another_with_the_same_bits(model: emel.Model) -> None:
    first = "one prefix of more than three blocks of 16 tokens 111"
    other = "one prefix of more than three blocks, or two"
    answers = [model.generate(each, temperature=0, max_tokens=8, logprobs=3) for each in (first, other, first, other)]
    assert [each.n_cached_tokens for each in answers] == [0, 32, 48, 32]
    assert outcome(answers[0]) == outcome(answers[2]) != outcome(answers[1]) == outcome(answers[3])


@pytest.mark.parametrize("cache_prompt", [False, True])
def test_equal_requests_at_once_have_the_bits_of_one_alone(model: emel.Model, cache_prompt: bool) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 20, "logprobs": 3, "cache_prompt": cache_prompt}
    prompt = "eight times the same, and longer than a block"
    alone = model.generate(prompt, **{**options, "cache_prompt": False})
    listeners = [Recorder() for _ in range(8)]
    counters = model.wave.counters
    n_steps, n_busy = counters.n_steps, counters.n_lanes_busy
    for each in listeners:
        model.submit(model.tokenize(prompt), each, **options)
    for each in listeners:
        assert each.is_over.wait(20)
        assert each.completion is not None
        assert outcome(each.completion) == outcome(alone)
    assert counters.n_lanes_busy - n_busy > counters.n_steps - n_steps, "some ran beside each other"


def test_no_prefix_is_kept_without_bytes_for_it(tiny_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1, prefix_bytes=0) as model:
        assert [model.generate("x" * 40, max_tokens=1).n_cached_tokens for _ in range(2)] == [0, 0]


def test_counters_add_up_after_threads_and_cancellations(model: emel.Model) -> None:
    """200 requests of four threads, a third of them cancelled somewhere; later answers are what they were."""
    expected = model.generate("to be", temperature=0, max_tokens=10).text

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(50):
            stream = model.stream("to be"[random.randrange(4) :], max_tokens=random.choice((3, 20)))
            if random.random() < 0.33:
                list(itertools.islice(stream, random.randrange(4)))
                stream.close()
            else:
                list(stream)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert n_open(model) == 0
    counters = model.wave.counters
    assert counters.n_submitted == (counters.n_stopped + counters.n_length + counters.n_cancelled + counters.n_failed)
    assert counters.n_failed == 0
    assert model.generate("to be", temperature=0, max_tokens=10).text == expected


def test_snapshot_tells_lanes_and_who_waits(slow: SlowGraph, model: emel.Model) -> None:
    streams = [model.stream("ab" * index, temperature=0) for index in range(1, 11)]
    slow.step(2)
    view = model.wave.snapshot()
    assert [lane.n_prompt for lane in view.lanes] == [2 * index for index in range(1, 9)]
    assert {lane.state for lane in view.lanes} <= {"decoding", "prefilling"}
    assert view.lanes[0].state == "decoding"
    assert [lane.n_prompt for lane in view.waiting] == [18, 20]
    assert view.n_lanes == 8
    assert 1 <= view.n_blocks_in_use <= 9  # the longest may be in its second block by now, or have read nothing yet
    assert all(lane.position == lane.n_computed for lane in view.lanes)
    for stream in streams:
        stream.close()
    slow.go_on()


def test_priority_overtakes(slow: SlowGraph, model: emel.Model) -> None:
    streams = [model.stream(f"{index}", temperature=0, priority=index % 2) for index in range(20)]
    slow.step(2)
    waiting = [lane.request_id for lane in model.wave.snapshot().waiting]
    for stream in streams:
        stream.close()
    slow.go_on()
    assert len(waiting) == 12
    ids = [stream._request.id for stream in streams]
    important = [each for index, each in enumerate(ids) if index % 2 and each in waiting]
    assert waiting[: len(important)] == important
    with pytest.raises(emel.RequestError, match="priority is 101: allowed are whole numbers from -100 to 100"):
        model.stream("a", priority=101)


@pytest.mark.parametrize("error", [ValueError("cannot listen"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_listener_that_raises_cancels_its_request_alone(
    error: BaseException, model: emel.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    class Bad(Recorder):
        def on_chunk(self, chunk: emel.Chunk) -> None:
            raise error

    bad, good = Bad(), Recorder()
    model.submit([5, 6], bad, temperature=0)
    model.submit([5, 6], good, temperature=0, max_tokens=9)
    assert bad.is_over.wait(60)
    assert good.is_over.wait(60)
    assert bad.completion is not None
    assert bad.completion.finish_reason == "cancelled"
    assert tuple(good.tokens) == model.generate_ids([5, 6], temperature=0, max_tokens=9).token_ids
    assert [each.exc_type for each in seen] == [type(error)]


@pytest.mark.parametrize("error", [RuntimeError("out of order"), SystemExit(1)], ids=repr)
def test_step_that_breaks_off_ends_every_request(
    error: BaseException, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a step raises where none should: nobody waits for ever, and the model says that it is closed."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with emel.load(tiny_path, n_threads=1) as model:
        wave = model.engine.wave

        errors = [error]

        def break_off() -> float:
            if wave.state is State.RESERVED and errors:
                raise errors.pop()
            return 0.0

        wave.context.clock = break_off
        for match in (r"\A(out of order|1)\Z", r"\Athis model is closed\nhint: load it again"):
            with pytest.raises(emel.RequestError, match=match):
                model.generate("abc")


def test_request_that_the_wave_cannot_take_ends_the_model_and_nobody_waits(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def refuse(*_: object) -> None:
        raise MemoryError

    with emel.load(tiny_path, n_threads=1) as model:
        with monkeypatch.context() as patch:
            patch.setattr(WaitingLine, "add", refuse)
            with pytest.raises(emel.RequestError, match=r"\Anot enough memory"):
                model.generate("abc")
        with pytest.raises(emel.ModelClosedError):
            model.generate("abc")


def test_action_that_gets_no_room_ends_the_model_and_nobody_waits(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def refuse(_: object) -> int:
        raise MemoryError

    with emel.load(tiny_path, n_threads=1) as model:
        with monkeypatch.context() as patch:
            patch.setattr(type(model.engine.memory), "free_blocks", refuse)
            with pytest.raises(emel.RequestError, match=r"\Anot enough memory"):
                model.logits([5, 6])
        with pytest.raises(emel.ModelClosedError):
            model.logits([5, 6])


def test_followers_of_a_request_that_comes_too_late_are_told(tiny_path: Path) -> None:
    errors: list[str] = []

    class Refused(Recorder):
        def on_failure(self, error: Exception) -> None:
            errors.append(str(error))

    with emel.load(tiny_path, n_threads=1) as model:
        engine = model.engine
        monkey = pytest.MonkeyPatch()
        monkey.setattr(engine, "check_open", model.close)  # between the check and the mailbox
        model.submit_all([5, 6], [Refused() for _ in range(3)], temperature=1)
        monkey.undo()
    assert errors == ["this model is closed"] * 3


def test_listener_cannot_wait_for_its_model(model: emel.Model) -> None:
    errors: list[str] = []

    class Waiter(Recorder):
        def on_chunk(self, chunk: emel.Chunk) -> None:
            waits: list[Callable[[], object]] = [
                lambda: model.generate("a"),
                lambda: model.logits([1]),
                lambda: model.generate_many(["a"]),
                lambda: list(model.stream("a", max_tokens=1)),
            ]
            for wait in waits:
                try:
                    wait()
                except emel.RequestError as error:
                    errors.append(str(error))
                else:
                    errors.append("it did not wait")

    waiter = Waiter()
    model.submit([5, 6], waiter, temperature=0, max_tokens=1)
    assert waiter.is_over.wait(60)
    assert set(errors) == {"a listener cannot wait for the model that calls it: submit a request instead"}


def test_step_that_fails_for_all_is_tried_for_each_alone(slow: SlowGraph, model: emel.Model) -> None:
    """A run that refuses one request says not whose fault it was."""
    compute = slow._graph.compute

    def refuse(batch: Batch) -> None:
        if 77 in list(batch.tokens[: batch.n_tokens]):
            raise ValueError("no 77 here")
        compute(batch)

    expected = [(3, 4, 5), (9, 9, 9)]

    class Refusing:
        compute = staticmethod(refuse)

    slow._graph = Refusing()
    recorders = [Recorder(), Recorder()]
    failures: list[Exception] = []

    class Refused(Recorder):
        def on_failure(self, error: Exception) -> None:
            failures.append(error)
            self.is_over.set()

    refused = Refused()
    model.submit(expected[0], recorders[0], temperature=0, max_tokens=5)
    model.submit([7, 77, 7], refused, temperature=0, max_tokens=5)
    model.submit(expected[1], recorders[1], temperature=0, max_tokens=5)
    slow.go_on()
    assert all(each.is_over.wait(60) for each in (*recorders, refused))
    assert [str(each) for each in failures] == ["no 77 here"]
    for ids, recorder in zip(expected, recorders, strict=True):
        assert tuple(recorder.tokens) == model.generate_ids(ids, temperature=0, max_tokens=5).token_ids


def test_context_has_room_for_the_longest_request_beside_others(model: emel.Model) -> None:
    with ThreadPoolExecutor(9) as pool:
        done = list(pool.map(lambda n: model.generate("y" * n, temperature=0), [N_CTX - 2] * 9))
    assert len({each.token_ids for each in done}) == 1
