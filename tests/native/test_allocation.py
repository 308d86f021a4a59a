"""The decode step allocates nothing natively and leaves nothing behind in Python, on the real engine."""

from __future__ import annotations

import gc
import linecache
import re
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import emel
from emel._native import LIBRARY
from emel.kernel.pool import LanePool
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.engine.model import Model

N_WARM, N_STEPS, N_ROUNDS = 50, 200, 5
PROMPT = [5, 9, 77, 140, 3]
PACKAGE = str(Path(emel.__file__).parent / "*")
SAMPLING: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "seed": 4},
}
FREED = 3  # blocks that the interpreter may keep in its free lists instead of giving them back, of a line
# Lines whose objects are the request itself: its tokens, its text, the blocks of its keys and values and their ids.
OF_THE_REQUEST = re.compile(
    r"context\.ids\.append\(|context\.text\.append\(|argmax\[output\]|choice\.token|Chunk\(|\.decode\(|text\[:"
    r"|token_ids = tuple\(|blocks \+= added|added = |\.state\.blocks|array\(\"i\", token_ids\)"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=2, n_ctx=512), "Q4_1")
    with emel.load(path, n_threads=2) as model:
        yield model


def text_steps(model: Model, **sampling: object) -> Iterator[int]:
    """One item for each chunk of streamed text: the number of its tokens."""
    prompt = model.detokenize(PROMPT)
    # Guesses keep an index of the request's tokens, which grows with them.
    for chunk in model.stream(prompt, max_tokens=N_WARM + N_STEPS + 100, speculate=False, **sampling):
        assert chunk.finish_reason is None, "the request ended before it was measured: choose another seed"
        yield len(chunk.token_ids)


def decode(n_tokens: int, steps: Iterator[int]) -> None:
    """Takes chunks of text until n_tokens tokens are in them."""
    while n_tokens > 0:
        n_tokens -= next(steps)


@pytest.mark.parametrize("name", SAMPLING)
def test_decoding_allocates_nothing_natively(model: Model, name: str) -> None:
    steps = text_steps(model, **SAMPLING[name])
    next(steps)
    before = LIBRARY.emel_allocation_count()
    decode(N_STEPS, steps)
    assert LIBRARY.emel_allocation_count() == before > 0


def test_prefill_and_measured_steps_allocate_nothing_natively(model: Model) -> None:
    before = LIBRARY.emel_allocation_count()
    model.measure(PROMPT * 40, N_STEPS)
    assert LIBRARY.emel_allocation_count() == before


def test_the_native_count_counts(model: Model) -> None:
    before = LIBRARY.emel_allocation_count()
    LanePool(2).close()
    assert LIBRARY.emel_allocation_count() >= before + 3  # the pool, its scratch, its threads


@pytest.fixture
def tracing() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


def survivors(before: tracemalloc.Snapshot, after: tracemalloc.Snapshot) -> dict[str, tuple[int, int]]:
    """Source line of EMEL -> (blocks, bytes) that it holds more of afterwards."""
    only = [tracemalloc.Filter(True, PACKAGE)]
    grown = {}
    for each in after.filter_traces(only).compare_to(before.filter_traces(only), "lineno"):
        if each.count_diff > FREED or each.size_diff > 64 * FREED:
            frame = each.traceback[0]
            grown[linecache.getline(frame.filename, frame.lineno).strip()] = (each.count_diff, each.size_diff)
    return grown


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("name", SAMPLING)
def test_decoding_leaves_nothing_allocated_in_python(model: Model, name: str) -> None:
    """The collector is off: garbage in cycles would count as well.

    The thread that computes may be so far ahead of this one that the request is over while it is measured, and its
    blocks kept for others. Such a round says nothing of steps; a leak in a step is there in every round.
    """
    for _ in range(N_ROUNDS):
        steps = text_steps(model, **SAMPLING[name])
        decode(N_WARM, steps)
        before = tracemalloc.take_snapshot()
        decode(N_STEPS, steps)
        grown = survivors(before, tracemalloc.take_snapshot())
        others = {line: size for line, size in grown.items() if not OF_THE_REQUEST.search(line)}
        if not others:
            break
    assert others == {}
    assert sum(blocks for blocks, _ in grown.values()) <= 2 * N_STEPS + N_STEPS // 8
    assert sum(n_bytes for _, n_bytes in grown.values()) < 200 * N_STEPS


@pytest.mark.usefixtures("tracing")
def test_a_leak_in_a_step_would_be_seen(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the measurement: a batch that keeps an object for every token."""
    from emel.graph import batch

    kept: list[object] = []
    advance = batch.Batch.advance
    source = "def leak(self, tokens):\n    kept.append(object())\n    advance(self, tokens)\n"
    scope = {"kept": kept, "advance": advance}
    exec(compile(source, batch.__file__, "exec"), scope)
    monkeypatch.setattr(batch.Batch, "advance", scope["leak"])
    steps = text_steps(model, temperature=0)
    decode(N_WARM, steps)
    before = tracemalloc.take_snapshot()
    decode(N_STEPS, steps)
    grown = survivors(before, tracemalloc.take_snapshot())
    assert [line for line in grown if not OF_THE_REQUEST.search(line)]
    assert len(kept) >= N_STEPS
