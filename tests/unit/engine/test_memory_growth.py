"""Invariant: what a process holds does not grow with the requests it has answered, whatever became of them."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

import emel

ALLOWED_BYTES = 1 << 20
"""For the allocator's own affairs; a thousand requests that left a kilobyte each would show."""


def resident_bytes() -> int:
    """Of this process, in memory that is its own."""
    gc.collect()
    anonymous = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(anonymous.split()[1]) * 1024


def request_of(seed: int) -> tuple[list[int], dict[str, Any]]:
    random = Random(seed)
    prompt = random.choices(range(1, 257), k=random.randint(1, 60))
    options = {"seed": seed, "temperature": random.choice((0, 1.0)), "max_tokens": random.randint(0, 6)}
    return prompt, {**options, "logprobs": random.choice((None, 2)), "stop": random.choice((None, "a", ["bc", "d"]))}


def answer(model: emel.Model, seed: int) -> tuple[int, ...]:
    prompt, options = request_of(seed)
    return model.generate_ids(prompt, **options).token_ids


def answer_some(model: emel.Model, seed: int) -> None:
    """A request that is given up somewhere: before its first token, on its way, or at its end."""
    prompt, options = request_of(seed)
    with model.stream(bytes(each % 256 for each in prompt), **options) as stream:
        for _, _ in zip(range(Random(seed).randint(0, 6)), stream, strict=False):
            pass


@pytest.mark.slow
def test_memory_does_not_grow_with_requests(tiny_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not say what a process holds")
    with emel.load(tiny_path, n_threads=2) as model:
        for seed in range(150):
            answer(model, seed)
        before = resident_bytes()
        for seed in range(1000):
            answer(model, seed)
        assert resident_bytes() - before < ALLOWED_BYTES

        alone = [answer(model, seed) for seed in range(20)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda seed: answer_some(model, seed), range(100)))
            before = resident_bytes()
            list(pool.map(lambda seed: answer_some(model, seed), range(200)))
            assert resident_bytes() - before < ALLOWED_BYTES
        assert [answer(model, seed) for seed in range(20)] == alone
        context = model.engine.wave.context
        assert model.engine.between_steps(context.memory.free_blocks) == context.memory.n_blocks
