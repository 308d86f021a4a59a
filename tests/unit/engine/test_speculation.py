"""Invariant: guesses change no answer: the same text, tokens and bits of logits, whatever the sampler is asked for."""

from __future__ import annotations

from array import array
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emel
from emel.errors import RequestError
from emel.text.speculation import StepCosts
from unit.engine.conftest import n_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LANES = (1, 2, 3, 5, 8)


class FreeRows(StepCosts):
    """Rows cost nothing: every guess is made that may be."""

    __slots__ = ()

    def table(self, first: int, last: int) -> list[float]:
        return [1.0] * (last - first + 1)


class Turns:
    """A constraint that allows every other half of the bytes, turn by turn."""

    is_over = False

    def __init__(self, n_vocab: int) -> None:
        self._masks = [array("I", [pattern] * ((n_vocab + 31) // 32)) for pattern in (0x0FF00FF0, 0xF00FF00F)]
        self._turn = 0

    def mask(self) -> int:
        return self._masks[self._turn % 2].buffer_info()[0]

    def accept(self, _token: int) -> None:
        self._turn += 1


def load_eager(path: Path, **options: Any) -> emel.Model:
    """A model that makes every guess it may make, and makes many."""
    model = emel.load(path, **options)
    model.engine.wave.context.costs = FreeRows()
    return model


@pytest.fixture(scope="module")
def eager_models(tiny_path: Path) -> Iterator[dict[int, emel.Model]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("emel.text.speculation._FIRST_RATES", (0.0, 0.0, 0.9, 0.9, 0.95, 0.99))
        loaded = {n: load_eager(tiny_path, n_lanes=n, n_threads=1 + n % 3) for n in LANES}
        yield loaded
        for model in loaded.values():
            assert n_open(model) == 0
            wave = model.engine.wave.context
            assert model.engine.between_steps(wave.memory.free_blocks) == wave.memory.n_blocks
            model.close()


_SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0, "repeat_penalty": 1.2, "repeat_last_n": 16},
    {"temperature": 0, "dry_multiplier": 0.8, "dry_allowed_length": 4},
    {"temperature": 0, "logit_bias": {65: 4.0, 66: 4.0}, "min_tokens": 6},
    {"temperature": 0.05},
    {"temperature": 1.0, "top_k": 3, "presence_penalty": 0.5},
    {"temperature": 0.3, "mirostat": 2, "mirostat_tau": 2.0},
    {"temperature": 0.3, "mirostat": 1},
    {"temperature": 1.5, "xtc_probability": 0.5, "min_p": 0.1},
)


def random_request(random: Random, n_vocab: int) -> tuple[list[int], dict[str, Any]]:
    """A prompt that repeats itself, and any sampling."""
    period = random.choices(range(65, 91), k=random.randint(1, 9))
    prompt = (period * 60)[: random.randint(4, 60)] + random.choices(range(65, 91), k=random.choice((0, 0, 2)))
    options: dict[str, Any] = {
        **random.choice(_SAMPLINGS),
        "seed": random.randrange(2**32),
        "max_tokens": random.choice((1, 3, 10, 30, None)),
        "cache_prompt": random.random() < 0.8,
        "logprobs": 3,
        "digests": True,
    }
    if random.random() < 0.3:
        options["stop"] = [chr(random.randrange(65, 91)), "\ufffd\ufffd"]
    if options["max_tokens"] is not None and options["max_tokens"] < options.get("min_tokens", 0):
        del options["min_tokens"]
    if random.random() < 0.2:
        options["new_constraint"] = partial(Turns, n_vocab)
    return prompt, options


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    return (
        completion.text,
        completion.token_ids,
        completion.finish_reason,
        completion.stop,
        completion.logprobs,
        completion.digests,
    )


def plain(model: emel.Model, prompt: list[int], options: dict[str, Any]) -> emel.Completion:
    """The answer without guesses."""
    completion = model.generate_ids(prompt, speculate=False, **options)
    assert completion.n_draft_tokens == completion.n_accepted_tokens == 0
    return completion


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_are_those_without_guesses(eager_models: dict[int, emel.Model], seed: int) -> None:
    """Many at once, most of them with guesses; afterwards alone, without."""
    random = Random(seed)
    model = eager_models[random.choice(LANES)]
    requests = [random_request(random, model.n_vocab) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = [
            pool.submit(model.generate_ids, ids, speculate=random.random() < 0.8, **options)
            for ids, options in requests
        ]
        answers = [each.result(60) for each in together]
    for (ids, options), answer in zip(requests, answers, strict=True):
        assert outcome(answer) == outcome(plain(model, ids, options))


@pytest.mark.parametrize("sampling", _SAMPLINGS, ids=str)
def test_answer_of_each_sampling_is_the_one_without_guesses(
    eager_models: dict[int, emel.Model], sampling: dict[str, Any]
) -> None:
    model = eager_models[1]
    options = {**sampling, "seed": 7, "max_tokens": 40, "logprobs": 2, "digests": True}
    n_guessed = 0
    for prompt in ([70, 71, 72] * 8, [80] * 20, [66, 90, 66, 67] * 5):
        answer = model.generate_ids(prompt, **options)
        assert outcome(answer) == outcome(plain(model, prompt, options))
        n_guessed += answer.n_draft_tokens
    assert n_guessed > 0


def test_prefix_left_by_an_answer_with_guesses_is_the_right_one(eager_models: dict[int, emel.Model]) -> None:
    model = eager_models[2]
    first = model.generate_ids([68, 69] * 10, temperature=0.2, seed=3, max_tokens=40)
    assert first.n_draft_tokens > 0
    prompt = [*[68, 69] * 10, *first.token_ids, 70]
    options = {"temperature": 0, "max_tokens": 12, "logprobs": 3, "digests": True}
    warm = model.generate_ids(prompt, **options)
    assert warm.n_cached_tokens >= 32
    assert outcome(warm) == outcome(plain(model, prompt, {**options, "cache_prompt": False}))


def test_preempted_answers_with_guesses_are_those_without(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.engine.memory.USUAL_TOKENS", 1)
    with load_eager(tiny_path, n_lanes=6, n_threads=2) as model:
        random = Random(5)
        requests = [random_request(random, model.n_vocab) for _ in range(24)]
        requests = [(ids[:20], {**options, "max_tokens": 70, "stop": None}) for ids, options in requests]
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda each: model.generate_ids(each[0], **each[1]), requests))
        assert model.wave.counters.n_accepted_tokens > 0
        for (ids, options), answer in zip(requests, answers, strict=True):
            assert outcome(answer) == outcome(plain(model, ids, options))
        assert n_open(model) == 0


def test_cancelled_amid_guesses_leaves_nothing_behind(eager_models: dict[int, emel.Model]) -> None:
    model = eager_models[1]
    before = model.wave.counters.n_cancelled
    for _ in range(5):
        with model.stream("abcabcabcabcabc", temperature=0, max_tokens=60) as stream:
            next(stream)
    assert n_open(model) == 0
    assert model.wave.counters.n_cancelled > before
    assert outcome(model.generate_ids([65, 66, 67] * 5, temperature=0, max_tokens=9)) == outcome(
        plain(model, [65, 66, 67] * 5, {"temperature": 0, "max_tokens": 9})
    )


def test_completion_and_counters_tell_of_guesses(tiny_path: Path) -> None:
    with load_eager(tiny_path, n_threads=1) as model:
        answers = [model.generate_ids([70, 71, 72] * 8, temperature=0, max_tokens=60) for _ in range(2)]
        counters = model.wave.counters
        assert sum(each.n_draft_tokens for each in answers) == counters.n_draft_tokens > counters.n_drafts > 0
        assert sum(each.n_accepted_tokens for each in answers) == counters.n_accepted_tokens > 0
        n_tokens = sum(len(each.token_ids) for each in answers)
        assert counters.n_steps == n_tokens - counters.n_accepted_tokens
        assert counters.n_generated_tokens == n_tokens


def test_no_guesses_are_made_where_none_are_wanted(tiny_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1, speculation=None) as model:
        assert model.engine.wave.context.costs is None
        completion = model.generate_ids([70] * 20, temperature=0, max_tokens=30, speculate=True)
        assert completion.n_draft_tokens == model.wave.counters.n_drafts == 0


@pytest.mark.parametrize("speculation", ["lokup", "", True, 3, ["lookup"]])
def test_speculation_by_any_other_name_is_refused(tiny_path: Path, speculation: Any) -> None:
    with pytest.raises(RequestError, match=r"^speculation is .*: it must be 'lookup', or None$"):
        emel.load(tiny_path, speculation=speculation)


def test_speculate_must_be_true_or_false(eager_models: dict[int, emel.Model]) -> None:
    with pytest.raises(RequestError, match=r"^speculate is 1: it must be True or False$"):
        eager_models[1].generate("a", speculate=1)
