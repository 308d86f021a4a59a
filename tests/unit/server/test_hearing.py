from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest

from emel.engine.results import Chunk, Completion, Timings
from emel.server.hearing import Hearing

DONE = Completion("", (), "stop", Timings(1, 1, 0.1, 0.1, 0.1), 1, 0, {})


class FakeRequest:
    """Notes that it was cancelled."""

    def __init__(self) -> None:
        self.n_cancelled = 0

    def cancel(self) -> None:
        self.n_cancelled += 1


def chunk(number: int) -> Chunk:
    return Chunk(str(number), (number,), None, None, None)


async def heard_by(hearing: Hearing) -> list[str]:
    return [each.text async for each in hearing.chunks()]


def test_chunks_of_many_threads_come_whole_and_in_order() -> None:
    n_each = 300

    async def listen() -> list[list[str]]:
        hearings = [Hearing() for _ in range(12)]

        def tell(mine: list[Hearing]) -> None:
            for number in range(n_each):
                for hearing in mine:
                    hearing.on_chunk(chunk(number))
            for hearing in mine:
                hearing.on_end(DONE)

        threads = [threading.Thread(target=tell, args=(hearings[index::3],)) for index in range(3)]
        for thread in threads:
            thread.start()
        heard = await asyncio.wait_for(asyncio.gather(*map(heard_by, hearings)), 60)
        for thread in threads:
            thread.join()
        return heard

    assert asyncio.run(listen()) == [[str(number) for number in range(n_each)]] * 12


def test_one_wake_up_serves_all_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listen() -> int:
        loop, calls = asyncio.get_running_loop(), []
        call: Any = loop.call_soon_threadsafe

        def counted(*arguments: Any) -> Any:
            calls.append(arguments)
            return call(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        hearings = [Hearing() for _ in range(8)]
        listening = [asyncio.ensure_future(heard_by(each)) for each in hearings]
        await asyncio.sleep(0)
        for hearing in hearings:
            hearing.on_chunk(chunk(1))
        n_calls = len(calls)
        for hearing in hearings:
            hearing.on_end(DONE)
        assert await asyncio.gather(*listening) == [["1"]] * 8
        return n_calls

    assert asyncio.run(listen()) == 1


def test_request_is_cancelled_when_nobody_can_hear_any_more() -> None:
    async def begin() -> list[Hearing]:
        return [Hearing(), Hearing()]

    requests = FakeRequest(), FakeRequest()
    for hearing, request in zip(asyncio.run(begin()), requests, strict=True):
        hearing.request = request  # type: ignore[assignment]
        hearing.on_chunk(chunk(1))
        hearing.on_chunk(chunk(2))
    assert [each.n_cancelled for each in requests] == [1, 1]


def test_loop_is_not_kept_by_those_that_listened() -> None:
    async def begin() -> tuple[Hearing, weakref.ref[Any]]:
        return Hearing(), weakref.ref(asyncio.get_running_loop())

    hearing, loop = asyncio.run(begin())
    gc.collect()
    assert loop() is None
    hearing.request = request = FakeRequest()  # type: ignore[assignment]
    hearing.on_chunk(chunk(1))
    assert request.n_cancelled == 1


def test_answer_that_takes_too_long_ends_with_a_timeout() -> None:
    async def listen() -> int:
        hearing = Hearing(timeout=0.02)
        hearing.request = request = FakeRequest()  # type: ignore[assignment]
        hearing.on_chunk(chunk(1))
        with pytest.raises(TimeoutError):
            await heard_by(hearing)
        return request.n_cancelled

    assert asyncio.run(listen()) == 1
