"""Amounts of memory as people write them, and what a session does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emel
from emel.engine.amounts import parse_memory
from emel.engine.budget import granted
from emel.engine.forecast import least_memory
from emel.engine.needs import needed_bytes
from emel.engine.options import LoadOptions
from emel.gguf import open_gguf
from emel.kernel.host_memory import HostMemory
from emel.memory.kv import KvCache
from model.every_model import EVERY_MODEL
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("2GiB", 2 << 30),
        ("2g", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("500MB", 500_000_000),
        ("300 kb", 300_000),
        ("1TiB", 1 << 40),
        ("1500000", 1_500_000),
        (" 1048576 ", 1 << 20),
        ("64b", 64),
        (4096, 4096),
    ],
)
def test_amounts_are_read_as_they_are_written(text: str | int, n_bytes: int) -> None:
    assert parse_memory(text) == n_bytes


def test_a_share_is_of_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emel.kernel.host_memory.read_host_memory", lambda: HostMemory(1000, 800, 900, True))
    assert parse_memory("50%") == 400
    assert parse_memory("100 %") == 800
    monkeypatch.setattr("emel.kernel.host_memory.read_host_memory", lambda: HostMemory(None, None, None, False))
    monkeypatch.setattr("emel.engine.memory.machine_bytes", lambda: 2000)
    assert parse_memory("12.5%") == 250


@pytest.mark.parametrize(
    "value", ["", "GiB", "2 apples", "-1", "50%%", "1e9", "0x10", "2 GiB x", "9" * 400, "9" * 5000 + "%"]
)
def test_what_is_no_amount_is_refused(value: str) -> None:
    with pytest.raises(emel.RequestError, match=r"^memory is "):
        parse_memory(value)


@pytest.mark.parametrize("value", [0, -5, "0", "0%", "101%", "0.1b"])
def test_amounts_out_of_range_are_refused(value: str | int) -> None:
    with pytest.raises(emel.RequestError, match="must be"):
        parse_memory(value)


@pytest.mark.parametrize("value", ["1", "2", "4096", "1000000"])
def test_a_number_that_misses_its_unit_is_told_of_units(value: str) -> None:
    with pytest.raises(emel.RequestError, match=f"memory is '{value}', which are bytes and hold no model") as caught:
        parse_memory(value)
    assert str(caught.value.hint).startswith(f"{value}GiB or {value}MiB, if that is what was meant")


@pytest.mark.parametrize("value", [1.5, True, b"2GiB", [1]])
def test_amounts_of_another_kind_are_refused(value: object) -> None:
    with pytest.raises(emel.RequestError):
        parse_memory(value)


@pytest.mark.model
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_streamed_model_answers_with_the_same_bits(smollm2_path: Path, share: float) -> None:
    ids = list(range(100, 130))
    with emel.load(smollm2_path, n_threads=2, n_ctx=256) as model:
        expected, answer = model.logits(ids), model.generate_ids(ids, temperature=0, max_tokens=2).token_ids
    with emel.load(smollm2_path, n_threads=2, memory=int(98_362_432 * share)) as model:
        assert model._open().is_streaming
        assert (model.logits(ids) == expected).all()
        assert model.generate_ids(ids, temperature=0, max_tokens=2).token_ids == answer


@pytest.mark.model
def test_a_budget_that_is_too_small_says_what_is_needed(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as file:
        least = least_memory(file)
    for memory in (1_000_000, least - 1):
        with pytest.raises(
            emel.ModelLoadError,
            match=f"^{memory} bytes of memory are too few: {least} are the least with a context of 256 tokens$",
        ):
            emel.load(smollm2_path, memory=memory)
    with emel.load(smollm2_path, n_threads=2, memory=least) as model:
        assert model.generate("Hello", max_tokens=2).text


def test_what_is_counted_is_what_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_model(path, EVERY_MODEL["llama"](), "Q8_0")
    n_bytes = needed_bytes(path, granted("1GiB"), LoadOptions(n_ctx=64, n_lanes=2))
    with emel.load(path, n_threads=1, n_ctx=64, n_lanes=2, memory="1GiB") as model:
        engine = model._open()
        assembly = engine.graph.plan.assembly
        assert isinstance(engine.memory, KvCache)
        logits = engine.batch.capacity.max_outputs * engine.model.parameters.n_vocab * 4
        allocated = engine.model.weights.n_bytes + engine.memory.n_bytes + assembly.placement.n_bytes + logits
    assert n_bytes == allocated
