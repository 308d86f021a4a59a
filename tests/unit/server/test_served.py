"""Models that are loaded while requests for them come."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from emel.errors import EmelError
from emel.server.errors import ApiError
from emel.server.served import ServedModels
from emel.server.served_model import LoadState, ServedModel
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable


def loads(**models: Callable[[], FakeModel]) -> dict[str, Any]:
    """What loads fake models, for real ones."""
    return models


async def until_loaded(models: ServedModels) -> None:
    async with asyncio.timeout(10):
        while models.first.state is not LoadState.READY:
            await asyncio.sleep(0.001)


def test_requests_for_a_model_that_is_loaded_anew_wait_whether_health_was_asked_or_not() -> None:
    may_load = threading.Event()
    may_load.set()

    def load() -> FakeModel:
        may_load.wait(10)
        return FakeModel("x")

    async def run() -> None:
        models = ServedModels(loads(a=load))
        models.start()
        await until_loaded(models)
        await models.unload(models.first)
        may_load.clear()
        asking = [asyncio.ensure_future(models.ready("a")) for _ in range(3)]
        _, waiting = await asyncio.wait(asking, timeout=0.05)
        assert len(waiting) == 3
        assert models.first.state is LoadState.LOADING
        may_load.set()
        assert await asyncio.gather(*asking) == [models.first] * 3
        await models.close()

    asyncio.run(run())


def test_requests_at_the_start_are_told_to_come_back() -> None:
    may_load = threading.Event()

    def load() -> FakeModel:
        may_load.wait(10)
        return FakeModel("x")

    async def run() -> None:
        models = ServedModels(loads(a=load, b=lambda: FakeModel("y")))
        models.start()
        assert not models.is_ready
        with pytest.raises(ApiError, match="Loading model") as refusal:
            await models.ready("a")
        assert refusal.value.status == 503
        may_load.set()
        await until_loaded(models)
        await models.ready("a")
        async with asyncio.timeout(10):
            while not models.is_ready:
                await asyncio.sleep(0.001)
        await models.close()

    asyncio.run(run())


def test_who_unloads_a_model_does_not_take_it_from_a_request_that_waits_for_it() -> None:
    n_loads = 0
    may_load = threading.Event()

    def load() -> FakeModel:
        nonlocal n_loads
        n_loads += 1
        may_load.wait(10)
        return FakeModel("x")

    async def run() -> None:
        models = ServedModels(loads(a=load))
        may_load.set()
        models.start()
        await until_loaded(models)
        for first, then in (("ready", "unload"), ("unload", "ready")):
            await models.unload(models.first)
            may_load.clear()
            loading = asyncio.ensure_future(models.load(models.first))
            await asyncio.sleep(0)
            given = {"ready": "a", "unload": models.first}
            doing = [asyncio.ensure_future(getattr(models, each)(given[each])) for each in (first, then)]
            await asyncio.sleep(0.01)
            may_load.set()
            await asyncio.gather(loading, *doing)
        await models.close()

    asyncio.run(run())
    assert n_loads >= 3


def test_a_model_that_is_unloaded_again_and_again_is_not_loaded_for_ever() -> None:
    class Fleeting(ServedModels):
        async def load(self, served: ServedModel) -> None:
            await super().load(served)
            await served.unload()

    async def run() -> None:
        models = Fleeting(loads(a=lambda: FakeModel("x")))
        with pytest.raises(ApiError, match="the model 'a' is not loaded") as refusal:
            await models.ready("a")
        assert refusal.value.status == 503
        assert not models.first.is_idle

    asyncio.run(run())


def fails(message: str) -> Callable[[], FakeModel]:
    def load() -> FakeModel:
        raise EmelError(message, hint="mend it")

    return load


def test_what_the_start_came_to_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def outcome_of(**models: Callable[[], FakeModel]) -> Exception | None:
        caplog.clear()
        served = ServedModels(loads(**models))
        served.start()
        try:
            return await served.started()
        finally:
            await served.close()

    async def run() -> None:
        alone = await outcome_of(a=fails("no"))
        assert (str(alone), getattr(alone, "hint", None)) == ("no", "mend it")
        assert caplog.messages == [], "who started it tells"
        both = await outcome_of(a=fails("no"), b=fails("neither"))
        assert (str(both), getattr(both, "hint", None)) == ("none of the 2 models could be loaded", "mend it")
        assert sorted(caplog.messages) == [
            "a: could not be loaded: no; mend it",
            "b: could not be loaded: neither; mend it",
        ]
        assert await outcome_of(a=fails("no"), b=lambda: FakeModel("x")) is None
        assert "a: could not be loaded: no; mend it" in caplog.messages

    caplog.set_level("INFO", "emel.server")
    asyncio.run(run())


def test_what_a_model_that_failed_had_loaded_is_not_held() -> None:
    made: list[weakref.ref[FakeModel]] = []

    def load() -> FakeModel:
        model = FakeModel("x")
        made.append(weakref.ref(model))
        raise EmelError("no")

    async def run() -> None:
        models = ServedModels(loads(a=lambda: FakeModel("y"), b=load))
        models.start()
        assert await models.started() is None
        assert models.named("b").error == "no"
        gc.collect()
        assert [each() for each in made] == [None]
        await models.close()

    asyncio.run(run())


def test_loading_and_unloading_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        models = ServedModels(loads(a=lambda: FakeModel("x")))
        for _ in range(2):
            (await models.ready("a")).release()
            await models.unload_idle(-1.0)
        await models.ready("a")
        await models.unload(models.first, reason="by a request")
        await models.close()

    caplog.set_level("INFO", "emel.server")
    asyncio.run(run())
    told = [re.sub(r"\d+\.\d s", "S", each) for each in caplog.messages]
    loaded, idle = "a: loaded in S, with a context of 4096 tokens (-c N: up to 8192)", "nobody asked for it in -1 s"
    assert told == [
        *2 * [loaded, f"a: unloaded: {idle}"],
        loaded,
        "a: unloaded: by a request",
    ]


def test_a_model_is_not_loaded_while_what_it_was_is_still_there() -> None:
    n_open = most_open = 0

    class Slow(FakeModel):
        def __init__(self) -> None:
            nonlocal n_open, most_open
            super().__init__("x")
            n_open += 1
            most_open = max(most_open, n_open)

        def close(self) -> None:
            nonlocal n_open
            time.sleep(0.02)
            n_open -= 1

    async def run() -> None:
        models = ServedModels(loads(a=Slow))
        await models.ready("a")
        unloading = asyncio.ensure_future(models.unload(models.first))
        await asyncio.sleep(0)
        await models.ready("a")
        await unloading
        await models.close()

    asyncio.run(run())
    assert (n_open, most_open) == (0, 1)
