"""Models that are loaded while requests for them come."""

from __future__ import annotations

import asyncio
import threading

import pytest

from emel.server.errors import ApiError
from emel.server.served import ServedModels
from emel.server.served_model import LoadState
from unit.server.fake_model import FakeModel


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
        models = ServedModels({"a": load})
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
        models = ServedModels({"a": load, "b": lambda: FakeModel("y")})
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
