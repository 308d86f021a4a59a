"""What a budget makes of a model, said before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.engine.forecast import Forecast, forecast, least_memory
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
    budgets = [least_of(path) + extra for extra in (0, MIB)]
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
    n_bytes = forecast_of(path, least_of(path) + MIB, 256, measure=False).streamed_bytes_per_token
    with open_gguf(path) as file:
        experts = sum(info.n_bytes for name, info in file.tensors.items() if "_exps." in name)
    assert 0 < n_bytes < experts * N_USED // N_EXPERTS


def test_too_little_memory_is_one_line_that_names_the_least(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", "llama")
    with open_gguf(path) as file:
        least = least_memory(file, 256)
    with pytest.raises(emel.ModelLoadError) as caught:
        forecast_of(path, MIB, 256)
    assert str(caught.value) == (
        f"{MIB} bytes of memory are too few: {least} are the least with a context of 256 tokens: give more, or ask for "
        "a smaller one"
    )
    with pytest.raises(emel.RequestError, match=r"^memory is 'much'"):
        forecast_of(path, "much")


def least_of(path: Path) -> int:
    with open_gguf(path) as file:
        return least_memory(file, 256)


@pytest.mark.parametrize("n_ctx", [None, 0, 64, 256])
@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral", "lfm2", "gpt-oss"])
def test_the_least_works_and_one_byte_less_does_not(
    name: str, n_ctx: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)
    path = write(tmp_path / "model.gguf", name)
    with open_gguf(path) as file:
        least = least_memory(file, n_ctx)
    with emel.load(path, n_threads=1, n_ctx=n_ctx) as model:
        expected = model.generate_ids([1, 2, 3], temperature=0, max_tokens=4, ignore_eos=True).token_ids
    with emel.load(path, n_threads=1, n_ctx=n_ctx, memory=least) as model:
        answer = model.generate_ids([1, 2, 3], temperature=0, max_tokens=4, ignore_eos=True)
        assert answer.token_ids == expected
    with pytest.raises(emel.ModelLoadError, match=rf"^{least - 1} bytes of memory are too few: {least} are the least "):
        emel.load(path, n_threads=1, n_ctx=n_ctx, memory=least - 1)
    for more in (least + 1, least + least // 8, 2 * least):  # what the shares of a larger budget ask for is no obstacle
        forecast_of(path, more, n_ctx, measure=False)
