"""Every architecture with its weights streamed gives the bits it gives with all of them in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel.kernel.streaming import StreamedWeights
from emel.model.errors import ModelError
from emel.model.loader import ModelDescription, load_model
from emel.model.residency import WeightBudget
from model.conformance import MAX_TOKENS, Runner
from model.every_model import EVERY_MODEL
from model.tiny_experts import EXPERT_MODELS, N_USED
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

IDS = [(37 * at + 11) % 500 for at in range(70)]


class StreamedRunner:
    """Runs a model within a budget for its weights; `n_bytes` 0: the smallest there is."""

    def __init__(self, path: Path, n_bytes: int, n_slots: int | None) -> None:
        self.path, self.n_slots = path, n_slots
        self.n_bytes = n_bytes or self.smallest()

    def open(self, n_bytes: int | None = None) -> Runner:
        def budget(_description: ModelDescription) -> WeightBudget:
            return WeightBudget(self.n_bytes if n_bytes is None else n_bytes, MAX_TOKENS, self.n_slots)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("emel.model.residency._READER_BYTES", 0)  # more than a tiny model has
            patch.setattr("model.conformance.load_model", partial(load_model, budget=budget))
            return Runner(self.path)

    def smallest(self) -> int:
        with pytest.raises(ModelError, match=r"^1 bytes are too few for these weights: \d+ are the least$") as caught:
            self.open(1)
        return int(str(caught.value).split()[-4])


def run(runner: Runner) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """A prompt in two chunks, then a step of three sequences."""
    logits = runner.logits(IDS, chunk=40)
    sequences = [runner.cache.open() for _ in range(3)]
    runner.step([(sequence, IDS[at : at + 5]) for at, sequence in enumerate(sequences)])
    step = runner.step([(sequence, [at + 7]) for at, sequence in enumerate(sequences)])
    for sequence in sequences:
        runner.cache.close_sequence(sequence)
    return logits, step


@pytest.mark.parametrize("name", EVERY_MODEL)
def test_streamed_bits_are_those_of_resident_weights(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL[name](), "Q8_0")
    with Runner(path) as runner:
        assert runner.model.residency is None
        logits, step = run(runner)
    with StreamedRunner(path, 0, 2).open() as runner:
        if runner.model.residency is None:
            pytest.skip("two slots are all the layers it has")
        for _ in range(2):
            streamed, streamed_step = run(runner)
            assert np.array_equal(streamed, logits)
            assert all(np.array_equal(a, b) for a, b in zip(streamed_step, step, strict=True))


@pytest.mark.parametrize("n_slots", [2, 3])
@pytest.mark.parametrize("extra", [0, 400_000])
def test_slots_and_budgets_change_no_bit(n_slots: int, extra: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["gemma3"](), "Q4_1")
    with Runner(path) as runner:
        logits, _ = run(runner)
    streamed = StreamedRunner(path, 0, n_slots)
    streamed.n_bytes += extra
    with streamed.open() as runner:
        residency = runner.model.residency
        assert residency is not None
        assert residency.layout.n_slots == n_slots
        assert residency.n_bytes <= streamed.n_bytes
        assert np.array_equal(run(runner)[0], logits)


@pytest.mark.parametrize("name", [*EXPERT_MODELS, "lfm2moe"])
def test_a_step_reads_the_chosen_experts_that_are_not_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL[name](), "Q8_0")
    with Runner(path) as runner:
        logits, step = run(runner)
    streamed = StreamedRunner(path, 0, None)
    streamed.n_bytes += 500_000  # for a few experts more than one layer has
    with streamed.open() as runner:
        weights, residency = runner.model.weights, runner.model.residency
        assert isinstance(weights, StreamedWeights)
        assert weights.experts is not None
        assert residency is not None
        assert residency.n_bytes <= streamed.n_bytes
        found, found_step = run(runner)
        assert np.array_equal(found, logits)
        assert all(np.array_equal(a, b) for a, b in zip(found_step, step, strict=True))
        sequence = runner.cache.open()
        for at in range(4):
            before, there = weights.experts.n_reads, weights.experts.present
            runner.step([(sequence, [3 * at])])
            read = weights.experts.n_reads - before
            assert len(weights.experts.present - there) <= read <= N_USED * len(residency.experts)
        runner.cache.close_sequence(sequence)


def test_a_budget_that_fits_everything_streams_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["llama"](), "Q8_0")
    with StreamedRunner(path, 1 << 30, None).open() as runner:
        assert runner.model.residency is None
        assert runner.graph.plan.stages is None


@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral", "lfm2"])
@pytest.mark.parametrize("tensors_a_part", [3, 10])
def test_a_model_in_several_files_is_streamed_from_all_of_them(name: str, tensors_a_part: int, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "whole.gguf", EVERY_MODEL[name](), "Q8_0")
    with Runner(tmp_path / "whole.gguf") as runner:
        logits, step = run(runner)
    write_tiny_model(tmp_path / "model.gguf", EVERY_MODEL[name](), "Q8_0", tensors_a_part=tensors_a_part)
    parts = sorted(tmp_path.glob("model-*-of-*.gguf"))
    with StreamedRunner(parts[0], 0, 2).open() as runner:
        residency = runner.model.residency
        assert residency is not None
        streamed = [extent for at in residency.layout.streamed for extent in residency.layout.units[at]]
        experts = [extent for group in residency.experts for extent in group.extents]
        assert len({extent.part for extent in [*streamed, *experts]}) > 1
        assert residency.cut  # some matrix goes through the window in pieces
        found, found_step = run(runner)
        assert np.array_equal(found, logits)
        assert all(np.array_equal(a, b) for a, b in zip(found_step, step, strict=True))


def test_traffic_says_what_was_read_and_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["mixtral"](), "Q8_0")
    with StreamedRunner(path, 0, 2).open() as runner:
        weights = runner.model.weights
        assert isinstance(weights, StreamedWeights)
        assert (weights.traffic().n_waits, weights.traffic().waited_seconds) == (0, 0.0)
        run(runner)
        traffic = weights.traffic()
        assert weights.experts is not None
        assert traffic.n_bytes > weights.experts.totals().n_bytes > 0
        assert traffic.n_loads > weights.experts.n_reads > 0
        assert 0 < traffic.n_waits <= traffic.n_loads
        assert 0 < traffic.waited_seconds < 60
