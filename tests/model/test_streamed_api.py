"""Through the public API, with any slots, budget and wave, whatever reads fail: streamed answers are resident ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.engine.budget import granted
from emel.engine.forecast import least_memory
from emel.engine.needs import needed_bytes
from emel.engine.options import LoadOptions
from emel.gguf import open_gguf
from emel.io.lanes import LaneCalls
from emel.kernel.streaming import StreamedWeights
from emel.model.residency import WeightBudget
from model.every_model import EVERY_MODEL
from model.tiny_llama import Geometry, write_tiny_llama
from model.tiny_models import write_tiny_model
from unit.tensor.layered_file import FaultyReads

if TYPE_CHECKING:
    from pathlib import Path

N_CTX = 32
OPTIONS: dict[str, Any] = {
    "temperature": 0.8,
    "max_tokens": 3,
    "ignore_eos": True,
    "logprobs": 2,
    "digests": True,
    "cache_prompt": False,
}
PROMPTS = [[(31 * seed + 7 * at + 1) % 250 for at in range(3 + seed)] for seed in range(8)]


def answers(model: emel.Model, n_wave: int) -> list[tuple[Any, ...]]:
    """What the first `n_wave` prompts get when they come together; a digest is of a step's logits, bit by bit."""
    with ThreadPoolExecutor(n_wave) as pool:
        found = [
            pool.submit(model.generate_ids, prompt, seed=seed, **OPTIONS)
            for seed, prompt in enumerate(PROMPTS[:n_wave])
        ]
        completions = [each.result(60) for each in found]
    return [(each.token_ids, each.logprobs, each.digests) for each in completions]


def resident_answers(path: Path, n_wave: int) -> list[tuple[Any, ...]]:
    with emel.load(path, n_threads=1, n_lanes=1, n_ctx=N_CTX, speculation=None) as model:
        return answers(model, n_wave)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many layers, so that eight of them and a context are less than a quarter of the file."""
    path = tmp_path_factory.mktemp("deep") / "model.gguf"
    write_tiny_llama(path, Geometry(n_layers=80, d_model=256, n_kv_heads=1, head_dim=32, d_ff=512), "Q8_0")
    return path


@pytest.fixture(scope="module")
def expected(deep: Path) -> list[tuple[Any, ...]]:
    return resident_answers(deep, len(PROMPTS))


@pytest.mark.parametrize("n_slots", [2, 3, 8])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_slots_budgets_and_waves_change_no_bit(
    deep: Path, expected: list[tuple[Any, ...]], n_slots: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.model.residency.WeightBudget", partial(WeightBudget, n_slots=n_slots))
    memory = int(share * deep.stat().st_size)
    with emel.load(deep, n_threads=2, n_lanes=8, n_ctx=N_CTX, memory=memory) as model:
        residency = model._open().model.residency
        assert residency is not None
        assert residency.layout.n_slots == n_slots
        for n_wave in (1, 4, 8):
            assert answers(model, n_wave) == expected[:n_wave]


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_every_architecture_answers_alike_from_memory_and_from_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a quarter, a half and three quarters of what lies between the least that works and all."""
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)  # more than a tiny model has
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL[name](), "Q8_0")
    expected = resident_answers(path, 4)
    with open_gguf(path) as file:
        least = least_memory(file, N_CTX)
    everything = needed_bytes(path, granted(1 << 30), LoadOptions(n_ctx=N_CTX, n_lanes=4))
    n_streamed = 0
    for share in (0.25, 0.5, 0.75):
        memory = int(least + share * (everything - least))
        with emel.load(path, n_threads=2, n_lanes=4, n_ctx=N_CTX, memory=memory) as model:
            n_streamed += model._open().is_streaming
            assert answers(model, 4) == expected
    if not n_streamed:
        pytest.skip("two slots are all the layers it has")


@pytest.mark.parametrize("n_failures", [1, 2])
def test_every_read_may_fail_once_or_twice(n_failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read after read: the request that meets it ends well or with one line, and the next one works."""
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["llama"](), "Q8_0")
    (expected,) = resident_answers(path, 1)
    reads = FaultyReads(path)
    monkeypatch.setattr(
        "emel.model.streamed.StreamedWeights", partial(StreamedWeights, calls=LaneCalls(read=reads.read))
    )
    with open_gguf(path) as file:
        least = least_memory(file, N_CTX)
    n_failed = 0
    with emel.load(path, n_threads=2, n_lanes=1, n_ctx=N_CTX, memory=least, speculation=None) as model:
        assert model._open().is_streaming
        for fail_at in range(1, 200):
            reads.n_calls, reads.fail_at, reads.n_failures = 0, fail_at, n_failures
            try:
                outcome: object = answers(model, 1)
            except emel.RequestError as error:
                outcome = str(error)
                n_failed += 1
            assert outcome == [expected] or str(outcome).startswith(f"cannot read {str(path)!r} at byte ")
            if reads.n_calls < fail_at:
                break
            reads.fail_at = 0
            assert answers(model, 1) == [expected]
        else:
            pytest.fail("no run passed")
    assert (n_failed > 0) == (n_failures > 1)
