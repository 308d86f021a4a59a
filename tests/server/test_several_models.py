"""Several real models within one budget: who makes room comes back with the same answers."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

import emel
from emel.engine.budget import Grant
from emel.engine.model import Model
from emel.engine.needs import needed_bytes
from emel.engine.options import LoadOptions
from emel.server.app import create_app
from emel.server.served import ServedModels
from emel.server.settings import Settings
from emel.server.shared_memory import SharedMemory
from model.tiny_llama import Geometry, write_tiny_llama
from server.test_process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDE = Geometry(n_layers=16, d_model=256, n_heads=2, n_kv_heads=1, d_ff=512, n_ctx=256)
BODY: dict[str, Any] = {"prompt": "The fox", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 1}
SIZES: dict[str, Any] = {"n_ctx": 128, "n_lanes": 2}
PLENTY = 1 << 30


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / f"{name}.gguf" for name in ("one", "two")}
    for seed, path in enumerate(found.values()):
        write_tiny_llama(path, WIDE, "Q8_0", seed)
    return found


@pytest.fixture
def client(paths: dict[str, Path]) -> Iterator[TestClient]:
    """Room for one and a half."""
    needed = needed_bytes(paths["one"], Grant(PLENTY, PLENTY), LoadOptions(**SIZES))
    needs = {name: partial(needed_bytes, path, options=LoadOptions(**SIZES)) for name, path in paths.items()}
    loads = {name: partial(emel.load, path, n_threads=1, **SIZES) for name, path in paths.items()}
    models = ServedModels(loads, memory=SharedMemory(needed * 3 // 2, needs))
    with TestClient(create_app(models, Settings())) as client:
        while client.get("/health").status_code != 200:
            pass
        yield client


def states(client: TestClient) -> list[str]:
    return [each["status"] for each in client.get("/v1/models").json()["data"]]


def answer(client: TestClient, name: str) -> Any:
    response = client.post("/v1/completions", json={**BODY, "model": name})
    assert response.status_code == 200, response.text
    return response.json()["choices"]


def test_they_take_turns_and_answer_as_they_do_alone(client: TestClient, paths: dict[str, Path]) -> None:
    assert states(client) == ["ready", "unloaded"]
    first = answer(client, "one")
    second = answer(client, "two")
    assert states(client) == ["unloaded", "ready"]
    assert first != second
    assert answer(client, "one") == first
    assert states(client) == ["ready", "unloaded"]
    assert answer(client, "two") == second


def test_a_grant_of_what_is_left_streams_with_the_context_and_the_bits_of_all(paths: dict[str, Path]) -> None:
    sizes: dict[str, Any] = {"n_ctx": None, "n_lanes": 2}
    needed = needed_bytes(paths["one"], Grant(PLENTY, PLENTY), LoadOptions(**sizes))
    ids = [65, 66, 67]
    with Model(paths["one"], LoadOptions(n_threads=1, n_lanes=2, memory=Grant(needed, PLENTY))) as model:
        logits, n_ctx, step = model.logits(ids), model.n_ctx, model._open().chunk
        assert not model._open().is_streaming
    less = Grant(needed - (3 << 20), PLENTY)
    assert needed_bytes(paths["one"], less, LoadOptions(**sizes)) <= less.n_bytes
    with Model(paths["one"], LoadOptions(n_threads=1, n_lanes=2, memory=less)) as model:
        assert model._open().is_streaming
        assert (model.n_ctx, model._open().chunk) == (n_ctx, step)
        assert (model.logits(ids) == logits).all()


def test_the_command_shares_its_memory(paths: dict[str, Path]) -> None:
    import httpx2 as httpx

    process = Process(*paths.values(), "-t", "1", "-c", "128", "--memory", "1GiB")
    try:
        text = httpx.get(f"{process.url}/metrics").text
        granted = [float(each) for each in re.findall(r"emel_memory_granted_bytes{.*} (\S+)", text)]
        assert "emel_memory_budget_bytes 1.073741824e+09" in text
        assert len(granted) == 2
        assert 0 < sum(granted) < 64 << 20
        assert httpx.get(f"{process.url}/props").json()["model_path"] == str(paths["one"])
    finally:
        assert process.end(15) == 0
        assert process.running.stderr is not None
        process.running.stderr.close()


def test_streamed_bytes_are_a_metric(paths: dict[str, Path]) -> None:
    sizes: dict[str, Any] = {"n_ctx": 128, "n_lanes": 2}
    needed = needed_bytes(paths["one"], Grant(PLENTY, PLENTY), LoadOptions(**sizes))
    load = partial(emel.load, paths["one"], n_threads=1, **sizes)
    memory = SharedMemory(
        needed - (3 << 20), {"one": partial(needed_bytes, paths["one"], options=LoadOptions(**sizes))}
    )
    with TestClient(create_app(ServedModels({"one": load}, memory=memory), Settings())) as client:
        while client.get("/health").status_code != 200:
            pass
        before = streamed_bytes(client)
        answer(client, "one")
        assert streamed_bytes(client) - before > 12 * (1 << 20), "every token reads what is not in memory"


def streamed_bytes(client: TestClient) -> float:
    [found] = re.findall(r'emel_streamed_bytes_total{model_name="one"} (\S+)', client.get("/metrics").text)
    return float(found)
