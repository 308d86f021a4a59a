"""Requests of a model with recurrent state, in one wave: each as alone, prefixes found as far as a checkpoint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import emel
from model.tiny_experts import tiny_lfm2
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[emel.Model]:
    path: Path = tmp_path_factory.mktemp("hybrid") / "lfm2.gguf"
    write_tiny_model(path, tiny_lfm2(), "Q8_0")
    with emel.load(path, n_threads=2, n_lanes=5, n_ctx=256) as model:
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
