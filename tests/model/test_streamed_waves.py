"""Requests of a model that does not fit its memory, in one wave: each has the bits of the model that does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import emel
from model.every_model import EVERY_MODEL
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N_REQUESTS = 12
SHARE = 0.85
"""Of the file: what a tiny model has to have in memory besides its layers is a large part of it."""
SHARES = {"lfm2": 1.1}
"""States, their copies for prefixes and the products that guesses may take back weigh more than its layers."""


@pytest.fixture(params=["lfm2", "gpt-oss", "qwen2moe", "gemma3"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL[request.param](), "Q8_0")
    return path


@pytest.fixture
def streaming(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[emel.Model]:
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)  # more than a tiny model has
    memory = int(SHARES.get(request.node.callspec.params["path"], SHARE) * path.stat().st_size)
    with emel.load(path, n_threads=2, n_lanes=4, n_ctx=128, memory=memory) as model:
        assert model.engine.is_streaming
        yield model


def request_of(seed: int) -> tuple[list[int], dict[str, Any]]:
    random = Random(seed)
    prompt = [*Random(seed % 2).choices(range(1, 250), k=40), *random.choices(range(1, 250), k=random.randint(1, 30))]
    options = {"temperature": random.choice((0, 1.0)), "seed": seed, "max_tokens": random.choice((1, 4, 12))}
    return prompt, {**options, "logprobs": 1, "digests": True, "ignore_eos": True}


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    return completion.text, completion.token_ids, completion.logprobs, completion.digests


def test_lanes_with_streamed_weights_equal_solo_runs_with_resident_ones(path: Path, streaming: emel.Model) -> None:
    """Also while others come and are cancelled."""
    requests = [request_of(seed) for seed in range(N_REQUESTS)]
    with emel.load(path, n_threads=1, n_lanes=1, n_ctx=128, prefix_bytes=0, speculation=None) as resident:
        alone = [outcome(resident.generate_ids(ids, **options)) for ids, options in requests]
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            with streaming.stream(b"to be or not to be", temperature=1, ignore_eos=True) as stream:
                next(stream)

    with ThreadPoolExecutor(N_REQUESTS + 1) as pool:
        others = pool.submit(come_and_go)
        try:
            together = [pool.submit(streaming.generate_ids, ids, **options) for ids, options in requests]
            assert [outcome(each.result(60)) for each in together] == alone
        finally:
            is_over.set()
        others.result(60)
    memory = streaming.engine.wave.context.memory
    assert streaming.engine.between_steps(memory.free_blocks) == memory.n_blocks
    assert streaming.wave.counters.n_cancelled > 0


def test_file_that_shrinks_fails_requests_until_the_model_is_loaded_again(path: Path, streaming: emel.Model) -> None:
    whole = path.read_bytes()
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
    expected = streaming.generate_ids([1, 2, 3], **options).token_ids
    with path.open("r+b") as file:
        file.truncate(4096)
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(streaming.generate_ids, [1, 2, at], **options) for at in range(4)]:
            with pytest.raises(emel.RequestError, match=f"shrank from {len(whole)} to at most"):
                each.result(60)
    path.write_bytes(whole)
    with pytest.raises(emel.RequestError, match="was written to while it was in use: load"):
        streaming.generate_ids([1, 2, 3], **options)
    with emel.load(path, n_threads=2, n_lanes=4, n_ctx=128) as again:
        assert again.generate_ids([1, 2, 3], **options).token_ids == expected


def test_file_that_was_cut_and_filled_up_fails_requests(path: Path, streaming: emel.Model) -> None:
    n_bytes = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(4096)
        file.truncate(n_bytes)
    for at in range(3):
        with pytest.raises(emel.RequestError, match="was written to while it was in use: load"):
            streaming.generate_ids([1, 2, at], temperature=0, max_tokens=4, ignore_eos=True)
    for ask in (
        lambda: streaming.embed("to be", pooling="mean"),
        lambda: streaming.logits([1, 2, 3]),
        lambda: streaming.measure([1, 2, 3], 2),
        lambda: streaming.save_session(path.with_suffix(".session"), [1, 2, 3]),
    ):
        with pytest.raises(emel.RequestError, match="was written to while it was in use: load"):
            ask()
