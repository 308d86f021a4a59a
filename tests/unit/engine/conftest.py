"""A tiny model for the engine's tests: random weights, a vocabulary of bytes, 96 tokens of context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.memory.kv import KvCache
from emel.text.chat import ChatTemplate
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from emel.graph.batch import Batch

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
    wave = shared_model.engine.wave.context
    left = shared_model.engine.between_steps(lambda: [*wave.lanes, *wave.waiting])
    for each in left:  # one test's fault is not the next one's
        each.cancel()
    assert left == []
    assert shared_model.engine.between_steps(wave.memory.free_blocks) == wave.memory.n_blocks
    assert n_open(shared_model) == 0


def n_open(model: emel.Model) -> int:
    """Sequences in use, by the wave and by the memory's rows, which must agree."""
    engine = model.engine
    memory = engine.memory
    assert isinstance(memory, KvCache)

    def count() -> int:
        rows = sum(state is not None for state in memory._sequences)
        assert rows == len(engine.wave.context.lanes)
        return rows

    return engine.between_steps(count)


class SlowGraph:
    """Computes a step whenever the test says so."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._allowed = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._is_free = False
        self.n_steps = 0

    def compute(self, batch: Batch) -> None:
        if not self._is_free:
            assert self._allowed.acquire(timeout=20)
        self.n_steps += 1
        self._graph.compute(batch)
        self._done.release()

    def step(self, n: int) -> None:
        """Lets n steps be computed, and waits until they are."""
        for _ in range(n):
            self._allowed.release()
            assert self._done.acquire(timeout=20)

    def go_on(self) -> None:
        """Never holds a step back again."""
        self._is_free = True
        self._allowed.release()


@pytest.fixture
def chatty(model: emel.Model) -> Iterator[emel.Model]:
    """The module's model, whose file has no chat template, with one."""
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}a: "
    model._template = ChatTemplate(template, bos="", eos="")
    yield model
    model._template = None


@pytest.fixture
def slow(model: emel.Model) -> Iterator[SlowGraph]:
    """Steps of the module's model are made one by one."""
    context = model.engine.wave.context
    graph = SlowGraph(context.graph)
    context.graph, plain = graph, context.graph
    yield graph
    graph.go_on()
    context.graph = plain
