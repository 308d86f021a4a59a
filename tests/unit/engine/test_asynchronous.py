from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from emel.errors import RequestError
from unit.engine.conftest import n_open

if TYPE_CHECKING:
    import emel
    from unit.engine.conftest import SlowGraph

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 20}


def test_answers_are_those_of_the_waiting_calls(model: emel.Model) -> None:
    async def talk() -> None:
        expected = model.generate("to be", **GREEDY)
        done, other = await asyncio.gather(model.agenerate("to be", **GREEDY), model.agenerate("or", **GREEDY))
        assert (done.text, done.token_ids) == (expected.text, expected.token_ids)
        assert other.text == model.generate("or", **GREEDY).text
        stream = model.astream("to be", **GREEDY)
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks) == expected.text
        assert stream.completion is chunks[-1].completion is not None
        assert [chunk async for chunk in stream] == []
        await stream.aclose()

    asyncio.run(talk())


def test_cancelled_task_cancels_its_request(slow: SlowGraph, model: emel.Model) -> None:
    async def talk() -> None:
        task = asyncio.create_task(model.agenerate("to be"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = model.astream("to be")
        reader = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        slow.go_on()

    before = model.wave.counters.n_cancelled
    asyncio.run(talk())
    assert n_open(model) == 0
    assert model.wave.counters.n_cancelled == before + 2


def test_closed_stream_keeps_what_was_computed(model: emel.Model) -> None:
    async def talk() -> None:
        async with model.astream("to be", temperature=0) as stream:
            first = await anext(stream)
        assert stream.completion is not None
        assert stream.completion.text.startswith(first.text)
        assert [chunk async for chunk in stream] == []

    asyncio.run(talk())
    assert n_open(model) == 0


def test_stream_left_to_be_collected_is_cancelled(model: emel.Model) -> None:
    async def talk() -> None:
        await anext(model.astream("to be", temperature=0))
        gc.collect()

    asyncio.run(talk())
    assert n_open(model) == 0


def test_loop_that_is_closed_cancels_what_it_listens_to(slow: SlowGraph, model: emel.Model) -> None:
    async def leave() -> Any:
        return model.astream("to be", temperature=0)

    left = asyncio.run(leave())
    slow.go_on()
    while n_open(model):  # the step that finds out may be still to come
        pass
    assert left.completion is None


def test_failures_are_raised(model: emel.Model) -> None:
    async def talk() -> None:
        with pytest.raises(RequestError, match="top_p is 3"):
            await model.agenerate("a", top_p=3)
        with pytest.raises(RequestError, match="the prompt has no tokens"):
            model.astream("")
        with pytest.raises(RequestError, match="no chat template"):
            await model.achat([{"role": "user", "content": "a"}])

    asyncio.run(talk())
