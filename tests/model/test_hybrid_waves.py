"""Requests of a model with recurrent state, in one wave: each as alone, prefixes found as far as a checkpoint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.text.speculation import StepCosts
from model.tiny_experts import tiny_lfm2
from model.tiny_models import write_tiny_model
from unit.engine.test_wave import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FreeRows(StepCosts):
    """Rows cost nothing: every guess is made that may be."""

    __slots__ = ()

    def table(self, first: int, last: int) -> list[float]:
        return [1.0] * (last - first + 1)


@pytest.fixture(scope="module")
def hybrid_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hybrid") / "lfm2.gguf"
    write_tiny_model(path, tiny_lfm2(), "Q8_0")
    return path


@pytest.fixture(scope="module")
def model(hybrid_path: Path) -> Iterator[emel.Model]:
    with emel.load(hybrid_path, n_threads=2, n_lanes=5, n_ctx=256) as model:
        model.engine.wave.context.costs = FreeRows()
        yield model


def request_of(seed: int) -> tuple[list[int], dict[str, Any]]:
    random = Random(seed)
    prompt = [*Random(seed % 2).choices(range(1, 250), k=70), *random.choices(range(1, 250), k=random.randint(1, 40))]
    return prompt, {"temperature": 1.0, "seed": seed, "max_tokens": random.choice((1, 8, 40)), "logprobs": 1}


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    return completion.text, completion.token_ids, completion.logprobs


def test_lanes_with_state_equal_their_solo_runs(model: emel.Model) -> None:
    requests = [request_of(seed) for seed in range(16)]
    alone = [outcome(model.generate_ids(ids, cache_prompt=False, **options)) for ids, options in requests]
    for _ in range(2):  # the second time with prefixes of the first
        with ThreadPoolExecutor(16) as pool:
            together = [pool.submit(model.generate_ids, ids, **options) for ids, options in requests]
            assert [outcome(each.result(60)) for each in together] == alone
    done = model.generate_ids(requests[0][0], n=3, **requests[0][1])
    assert outcome(done.choices[0]) == alone[0]


def test_prefix_is_found_up_to_a_checkpoint(model: emel.Model) -> None:
    prompt = [*Random(7).choices(range(1, 250), k=100)]
    cold = model.generate_ids(prompt, temperature=0, max_tokens=30, logprobs=2)
    warm = model.generate_ids(prompt, temperature=0, max_tokens=30, logprobs=2)
    longer = model.generate_ids([*prompt, *cold.token_ids, 5], temperature=0, max_tokens=3)
    assert (cold.n_cached_tokens, warm.n_cached_tokens) == (0, 96)
    assert outcome(cold) == outcome(warm)
    assert longer.n_cached_tokens == (len(prompt) + len(cold.token_ids) - 1) // 16 * 16


def test_lanes_with_state_equal_their_solo_runs_while_others_are_cancelled(model: emel.Model) -> None:
    """Given up while they are read, while they decode, as followers of another: their states are free for the next."""
    requests = [request_of(seed) for seed in range(20, 28)]
    alone = [outcome(model.generate_ids(ids, cache_prompt=False, **options)) for ids, options in requests]
    n_cancelled = model.wave.counters.n_cancelled

    def give_up(seed: int) -> None:
        ids, _ = request_of(seed)
        with model.stream(bytes(ids), temperature=1.0, seed=seed, ignore_eos=True) as stream:
            for _ in range(seed % 3):
                next(stream)

    with ThreadPoolExecutor(24) as pool:
        others = [pool.submit(give_up, seed) for seed in range(40)]
        together = [pool.submit(model.generate_ids, ids, **options) for ids, options in requests]
        assert [outcome(each.result(60)) for each in together] == alone
        for each in others:
            each.result(60)
    memory = model.engine.wave.context.memory
    assert model.engine.between_steps(memory.free_blocks) == memory.n_blocks
    assert model.wave.counters.n_cancelled - n_cancelled > 0


def repetitive_request(seed: int) -> tuple[list[int], dict[str, Any]]:
    """A prompt that repeats itself, and three tokens to answer it with: some guesses come true."""
    random = Random(seed)
    prompt = random.choices(range(65, 68), k=random.randint(1, 9)) * 9
    options = {"temperature": random.choice((0, 0.3)), "seed": seed, "max_tokens": random.choice((20, 60))}
    return prompt, {**options, "logprobs": 1, "logit_bias": {65: 9.0, 66: 9.0, 67: 9.0}}


def test_guesses_change_no_answer_of_lanes_with_state(model: emel.Model) -> None:
    """Wrong ones are taken back from the states, in a wave whose lanes come and go."""
    requests = [repetitive_request(seed) for seed in range(24)]
    counters = model.wave.counters
    before = counters.n_draft_tokens, counters.n_accepted_tokens
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: model.generate_ids(each[0], **each[1]), requests))
    n_drafted, n_accepted = counters.n_draft_tokens - before[0], counters.n_accepted_tokens - before[1]
    assert n_drafted > n_accepted > 0
    for (ids, options), answer in zip(requests, answers, strict=True):
        alone = model.generate_ids(ids, speculate=False, cache_prompt=False, **options)
        assert outcome(answer) == outcome(alone)


def test_guesses_leave_the_right_prefix(model: emel.Model) -> None:
    """Checkpoints are made in the midst of a step with guesses, of which some are wrong."""
    n_found = 0
    for seed in range(30, 40):
        ids, options = repetitive_request(seed)
        first = model.generate_ids(ids, **options)
        prompt = [*ids, *first.token_ids, 7]
        warm = model.generate_ids(prompt, temperature=0, max_tokens=5, logprobs=1)
        cold = model.generate_ids(prompt, temperature=0, max_tokens=5, logprobs=1, cache_prompt=False, speculate=False)
        assert outcome(warm) == outcome(cold)
        n_found += warm.n_cached_tokens >= len(ids)
    assert n_found > 7


def test_lanes_with_state_are_preempted_amid_guesses(hybrid_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.engine.memory.USUAL_TOKENS", 1)
    with emel.load(hybrid_path, n_threads=1, n_lanes=4, n_ctx=128) as model:
        model.engine.wave.context.costs = FreeRows()
        requests = [repetitive_request(seed) for seed in range(12)]
        requests = [(ids[:30], {**options, "max_tokens": 90}) for ids, options in requests]
        recorders = [Recorder() for _ in requests]

        def submit_all() -> None:
            for recorder, (ids, options) in zip(recorders, requests, strict=True):
                model.submit(ids, recorder, **options)

        model.engine.between_steps(submit_all)
        assert all(each.is_over.wait(300) for each in recorders)
        assert model.wave.counters.n_preempted > 0
        assert model.wave.counters.n_accepted_tokens > 0
        for (ids, options), recorder in zip(requests, recorders, strict=True):
            assert recorder.completion is not None
            assert outcome(recorder.completion) == outcome(
                model.generate_ids(ids, speculate=False, cache_prompt=False, **options)
            )
        memory = model.engine.wave.context.memory
        assert model.engine.between_steps(memory.free_blocks) == memory.n_blocks


def test_model_with_a_state_drafts_for_itself_and_guesses_right(hybrid_path: Path) -> None:
    with emel.load(hybrid_path, n_threads=1, n_lanes=2, n_ctx=256, draft=hybrid_path) as model:
        model.engine.wave.context.costs = FreeRows()
        greedy = {"temperature": 0, "max_tokens": 60, "logprobs": 1}
        answer = model.generate_ids([70, 90, 65, 81], **greedy)
        assert answer.n_accepted_tokens == answer.n_draft_tokens > 30
        warm = {"temperature": 1.0, "seed": 3, "max_tokens": 60, "logprobs": 1}
        for options in (greedy, warm):
            plain = model.generate_ids([70, 90, 65, 81], speculate=False, **options)
            assert outcome(model.generate_ids([70, 90, 65, 81], **options)) == outcome(plain)
        drafter = model.engine.drafter
        assert drafter is not None
        assert model.engine.between_steps(drafter.memory.free_blocks) == drafter.memory.n_blocks


@pytest.mark.parametrize("n_tokens", [1, 2, 15, 16, 17, 53, 64, 100])
def test_session_of_a_model_with_a_state_comes_back(hybrid_path: Path, tmp_path: Path, n_tokens: int) -> None:
    ids = [65 + 7 * each % 26 for each in range(n_tokens)]
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "logprobs": 2}
    with emel.load(hybrid_path, n_threads=1, n_ctx=256) as first:
        expected = [first.generate_ids(prompt, cache_prompt=False, **options) for prompt in (ids, [*ids, 70, 71])]
        first.save_session(tmp_path / "cold", ids)
        first.generate_ids([*ids[: n_tokens // 2], 9, 9, 9], **options)
        first.save_session(tmp_path / "warm", ids)
    assert (tmp_path / "cold").read_bytes() == (tmp_path / "warm").read_bytes()
    with emel.load(hybrid_path, n_threads=2, n_ctx=256) as second:
        assert second.load_session(tmp_path / "cold") == ids
        for prompt, answer in zip((ids, [*ids, 70, 71]), expected, strict=True):
            found = second.generate_ids(prompt, **options)
            n_known = min(n_tokens, len(prompt) - 1)
            assert found.n_cached_tokens == n_known // 16 * 16
            assert outcome(found) == outcome(answer)


def test_session_of_another_kind_of_state_is_refused(hybrid_path: Path, tmp_path: Path) -> None:
    """Every byte of the state counts: one that was changed is noticed, as is a file that ends before it."""
    ids = list(range(70, 110))
    with emel.load(hybrid_path, n_threads=1, n_ctx=256) as model:
        model.save_session(tmp_path / "s", ids)
        data = (tmp_path / "s").read_bytes()
        for changed, message in (
            (data[:-40] + bytes([data[-40] ^ 1]) + data[-39:], "its digest is wrong"),
            (data[:-64], "it is cut off"),
        ):
            (tmp_path / "s").write_bytes(changed)
            with pytest.raises(emel.RequestError, match=message):
                model.load_session(tmp_path / "s")
        memory = model.engine.wave.context.memory
        assert model.engine.between_steps(memory.free_blocks) == memory.n_blocks
