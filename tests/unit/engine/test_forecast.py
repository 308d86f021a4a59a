"""What a budget makes of a model, said before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.engine.forecast import Forecast, forecast
from emel.gguf import open_gguf
from model.every_model import EVERY_MODEL
from model.tiny_experts import N_EXPERTS, N_USED
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def forecast_of(path: Path, memory: int | str, n_ctx: int | None = None, *, measure: bool = True) -> Forecast:
    with open_gguf(path) as file:
        return forecast(file, memory, n_ctx, measure=measure)


def write(path: Path, name: str) -> Path:
    write_tiny_model(path, EVERY_MODEL[name](), "Q8_0")
    return path


def test_a_budget_that_fits_streams_nothing(tmp_path: Path) -> None:
    found = forecast_of(write(tmp_path / "model.gguf", "llama"), "1GiB")
    assert found.budget_bytes == 1 << 30
    assert found.streamed_bytes_per_token == 0
    assert found.read_bytes_per_second is None  # there was nothing to measure for
    assert found.tokens_per_second_at_most is None


def test_what_a_token_reads_and_how_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)  # more than a tiny model has
    path = write(tmp_path / "model.gguf", "llama")
    budgets = [smallest_budget(path) + extra for extra in (0, MIB)]
    less, more = (forecast_of(path, budget, 256) for budget in budgets)
    assert less.n_ctx == 256
    assert less.weights_bytes < less.budget_bytes
    assert less.streamed_bytes_per_token > more.streamed_bytes_per_token
    assert less.read_bytes_per_second is None or less.tokens_per_second_at_most == pytest.approx(
        less.read_bytes_per_second / less.streamed_bytes_per_token
    )
    assert forecast_of(path, budgets[0], 256, measure=False).read_bytes_per_second is None


def test_experts_count_as_often_as_they_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)
    path = write(tmp_path / "model.gguf", "mixtral")
    n_bytes = forecast_of(path, smallest_budget(path) + MIB, 256, measure=False).streamed_bytes_per_token
    with open_gguf(path) as file:
        experts = sum(info.n_bytes for name, info in file.tensors.items() if "_exps." in name)
    assert 0 < n_bytes < experts * N_USED // N_EXPERTS


def test_too_little_memory_is_one_line_that_names_the_least(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", "llama")
    with pytest.raises(emel.ModelLoadError, match=r"^\d+ bytes are too few for these weights: \d+ are the least$"):
        forecast_of(path, 2 * MIB, 256)
    with pytest.raises(emel.RequestError, match=r"^memory is 'much'"):
        forecast_of(path, "much")


def smallest_budget(path: Path) -> int:
    """A budget that works, not much above the least."""
    n_bytes = MIB
    while True:
        try:
            forecast_of(path, n_bytes, 256, measure=False)
        except emel.ModelLoadError:
            n_bytes += MIB // 4
        else:
            return n_bytes
