"""One budget for several models: who is loaded, who makes room, who is told to wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from emel.errors import EmelError, ModelLoadError, RequestError
from emel.server.app import create_app
from emel.server.served import ServedModels
from emel.server.settings import Settings
from emel.server.shared_memory import SharedMemory
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.engine.budget import Grant

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


class Fleet:
    """Fake models that need so many bytes, and at least so many when they stream."""

    def __init__(self, n_bytes: int, needs: dict[str, tuple[int, int]]) -> None:
        self.loaded: dict[str, list[FakeModel]] = {name: [] for name in needs}
        self.grants: list[tuple[str, int, int]] = []
        self.is_broken = False
        self.too_few: type[EmelError] = ModelLoadError
        self._needs = needs
        memory = SharedMemory(n_bytes, {name: self._needed(name) for name in needs})
        self.models = ServedModels({name: self._load(name) for name in needs}, memory=memory)
        self.client = TestClient(create_app(self.models, Settings()), raise_server_exceptions=False)

    def ask(self, name: str) -> Any:
        return self.client.post(PATH, json={**CHAT, "model": name})

    @property
    def states(self) -> dict[str, str]:
        return {each["id"]: each["status"] for each in self.client.get("/v1/models").json()["data"]}

    def _needed(self, name: str) -> Callable[[Grant], int]:
        def needed(grant: Grant) -> int:
            wanted, least = self._needs[name]
            if grant.n_bytes < least:
                raise self.too_few(f"{grant.n_bytes} bytes are too few: {least} are the least")
            return min(wanted, grant.n_bytes)

        return needed

    def _load(self, name: str) -> Callable[..., Any]:
        def load(memory: Grant) -> FakeModel:
            if self.is_broken:
                raise ModelLoadError("the file is half there")
            self.grants.append((name, memory.n_bytes, memory.whole))
            self.loaded[name].append(FakeModel(f"from {name}"))
            return self.loaded[name][-1]

        return load


@pytest.fixture
def fleet() -> Iterator[Callable[..., Fleet]]:
    with contextlib.ExitStack() as stack:

        def start(n_bytes: int, **needs: tuple[int, int]) -> Fleet:
            found = Fleet(n_bytes, needs)
            stack.enter_context(found.client)
            for _ in range(400):
                if found.client.get("/health").status_code == 200:
                    return found
                time.sleep(0.01)
            raise AssertionError("it does not get ready")

        yield start


def test_models_that_fit_together_are_all_loaded(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 10), b=(60, 10))
    assert found.states == {"a": "ready", "b": "ready"}
    assert found.grants == [("a", 40, 100), ("b", 60, 100)]


def test_what_finds_no_room_at_the_start_waits_until_it_is_asked_for(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(70, 10), b=(60, 10), c=(30, 10))
    assert found.states == {"a": "ready", "b": "unloaded", "c": "ready"}
    assert found.ask("b").json()["choices"][0]["message"]["content"] == "from b"
    assert found.states == {"a": "unloaded", "b": "ready", "c": "ready"}, "the longest unused one makes room"
    assert found.loaded["a"][0].is_closed
    assert found.grants[-1] == ("b", 60, 100)


def test_the_longest_unused_makes_room_and_no_more_than_are_needed(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 1), b=(40, 1), c=(50, 1))
    assert found.ask("b").status_code == found.ask("a").status_code == 200
    assert found.ask("c").status_code == 200
    assert found.states == {"a": "ready", "b": "unloaded", "c": "ready"}


def test_a_model_in_use_is_not_unloaded_and_the_other_streams(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(70, 10), b=(60, 20))
    with answering(found, "a"):
        assert found.ask("b").status_code == 200
        assert found.states == {"a": "ready", "b": "ready"}
    assert found.grants[-1] == ("b", 30, 100), "what is left, with the context of the whole budget"


@pytest.mark.parametrize("too_few", [ModelLoadError, RequestError])
def test_without_room_to_stream_the_request_is_told_what_to_do(
    fleet: Callable[..., Fleet], too_few: type[EmelError]
) -> None:
    """RequestError: what the draft model of one needs is more than is left."""
    found = fleet(100, a=(70, 10), b=(60, 40))
    found.too_few = too_few
    with answering(found, "a"):
        for response in (found.ask("b"), found.client.post("/models/load", json={"model": "b"})):
            error = response.json()["error"]
            assert (response.status_code, response.headers["retry-after"]) == (503, "5")
            assert error["code"] == "model_does_not_fit"
            assert error["message"] == (
                "the model 'b' needs 60 bytes, and 30 of the budget of 100 are left beside 'a' (70); "
                "try again when they are idle, unload one (POST /models/unload), or start the server with more --memory"
            )
        assert found.states["b"] == "unloaded"
        assert found.client.get("/health").status_code == 200
    assert found.ask("b").status_code == 200, "once it is idle, the other makes room"


def test_a_model_too_large_for_the_whole_budget_fails_and_says_the_least(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 10), b=(300, 200))
    assert found.states == {"a": "ready", "b": "failed"}
    response = found.ask("b")
    assert response.status_code == 503
    assert "200 are the least" in response.json()["error"]["message"]
    assert found.states["a"] == "ready"


def test_memory_that_was_given_back_is_granted_again(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(70, 10), b=(60, 10))
    for _ in range(3):
        assert found.client.post("/models/unload", json={"model": "a"}).json()["model"]["status"] == "unloaded"
        assert found.client.post("/models/load", json={"model": "b"}).json()["model"]["status"] == "ready"
        assert found.client.post("/models/load", json={"model": "a"}).json()["model"]["status"] == "ready"
        assert found.states == {"a": "ready", "b": "unloaded"}
    assert {n_bytes for name, n_bytes, _ in found.grants if name == "a"} == {70}


def test_a_load_that_fails_gives_its_memory_back(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 10), b=(70, 10))
    found.is_broken = True
    assert found.client.post("/models/load", json={"model": "b"}).status_code == 503
    assert found.states == {"a": "unloaded", "b": "failed"}
    assert found.models.memory is not None
    assert found.models.memory.n_free == 100


def test_metrics_tell_who_has_what(fleet: Callable[..., Fleet]) -> None:
    text = fleet(100, a=(70, 10), b=(60, 10)).client.get("/metrics").text
    assert "emel_memory_budget_bytes 100.0" in text
    assert 'emel_memory_granted_bytes{model_name="a"} 70.0' in text
    assert 'emel_memory_granted_bytes{model_name="b"} 0.0' in text


def test_who_is_asked_for_while_another_makes_room_is_not_unloaded(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 10), b=(40, 10), c=(90, 10))
    with closing_takes_long(found, "a") as go_on:
        loading = threading.Thread(target=found.ask, args=("c",))
        loading.start()
        assert go_on.is_waited_for.wait(10)
        with answering(found, "b"):
            go_on.set()
            loading.join()
            assert found.states == {"a": "unloaded", "b": "ready", "c": "ready"}
            assert not found.loaded["b"][0].is_closed
    assert found.grants[-1] == ("c", 60, 100), "it streams"


def test_who_is_asked_for_while_it_waits_to_be_unloaded_as_idle_is_not_unloaded(fleet: Callable[..., Fleet]) -> None:
    found = fleet(100, a=(40, 10), b=(40, 10))
    with closing_takes_long(found, "a") as go_on:
        unloading = threading.Thread(target=lambda: found.client.post("/models/unload", json={"model": "a"}))
        unloading.start()
        assert go_on.is_waited_for.wait(10)
        b = found.models.named("b")
        assert found.client.portal is not None
        idle = found.client.portal.start_task_soon(found.models.unload_idle, -1.0)
        found.client.portal.call(asyncio.sleep, 0.05)  # it waits for the lock, which the other has
        with answering(found, "b"):
            go_on.set()
            unloading.join()
            idle.result(10)
            assert b.is_loaded
        found.client.portal.call(found.models.unload_idle, -1.0)
        assert not b.is_loaded


class Latch(threading.Event):
    """An event that tells whether somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_waited_for.set()
        return super().wait(timeout)


@contextlib.contextmanager
def closing_takes_long(found: Fleet, name: str) -> Iterator[Latch]:
    """A model is not closed before the latch is set."""
    model, go_on = found.loaded[name][-1], Latch()
    close = model.close

    def close_late() -> None:
        go_on.wait(10)
        close()

    model.close = close_late  # type: ignore[method-assign]
    try:
        yield go_on
    finally:
        go_on.set()


@contextlib.contextmanager
def answering(found: Fleet, name: str) -> Iterator[None]:
    """While a model answers a request that does not end by itself."""
    model = found.loaded[name][-1]
    model.texts = None
    asking = threading.Thread(target=found.ask, args=(name,))
    asking.start()
    assert model.submitted.wait(10)
    try:
        yield
    finally:
        model.requests[-1].say("done")
        asking.join()
