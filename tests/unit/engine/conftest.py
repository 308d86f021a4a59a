"""A tiny model for the engine's tests: random weights, a vocabulary of bytes, 96 tokens of context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N_CTX = 96


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=N_CTX), "Q8_0")
    return path


@pytest.fixture(scope="module")
def shared_model(tiny_path: Path) -> Iterator[emel.Model]:
    with emel.load(tiny_path, n_threads=1) as model:
        yield model


@pytest.fixture
def model(shared_model: emel.Model) -> Iterator[emel.Model]:
    """The module's model; whatever the test did, all its memory must be free afterwards."""
    yield shared_model
    session = shared_model.session
    left, session.seats = session.seats, []  # one test's fault is not the next one's
    session.turns.run(session._repair)
    assert left == []
    assert session.cache.pool.n_free == session.cache.n_blocks
    assert all(not session.cache.n_tokens(session.cache.open()) for _ in range(session.cache.max_sequences))
    for sequence in range(session.cache.max_sequences):
        session.cache.close_sequence(sequence)
