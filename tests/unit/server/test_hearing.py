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
    """The texts of the chunks, until as many answers ended as there are listeners."""
    texts: list[str] = []
    n_running = len(hearing.listeners)

    def hear() -> bool:
        nonlocal n_running
        while hearing.heard:
            _, what = hearing.heard.popleft()
            if isinstance(what, Chunk):
                texts.append(what.text)
            else:
                n_running -= 1
        return n_running > 0

    await hearing.each(hear)
    return texts


def test_chunks_of_many_threads_come_whole_and_in_order() -> None:
    n_each = 300

    async def listen() -> list[list[str]]:
        hearings = [Hearing(1) for _ in range(12)]

        def tell(mine: list[Hearing]) -> None:
            for number in range(n_each):
                for hearing in mine:
                    hearing.listeners[0].on_chunk(chunk(number))
            for hearing in mine:
                hearing.listeners[0].on_end(DONE)

        threads = [threading.Thread(target=tell, args=(hearings[index::3],)) for index in range(3)]
        for thread in threads:
            thread.start()
        heard = await asyncio.wait_for(asyncio.gather(*map(heard_by, hearings)), 60)
        for thread in threads:
            thread.join()
        return heard

    assert asyncio.run(listen()) == [[str(number) for number in range(n_each)]] * 12


def test_answers_of_one_request_are_told_apart() -> None:
    async def listen() -> list[tuple[int, Any]]:
        hearing = Hearing(3)
        for index, listener in enumerate(hearing.listeners):
            listener.on_chunk(chunk(index))
        hearing.listeners[1].on_failure(RuntimeError("broken"))
        hearing.listeners[2].on_end(DONE)
        assert await hearing.wait(30)
        return [(index, what.text if isinstance(what, Chunk) else type(what)) for index, what in hearing.heard]

    assert asyncio.run(listen()) == [(0, "0"), (1, "1"), (2, "2"), (1, RuntimeError), (2, Completion)]


def test_one_wake_up_serves_all_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listen() -> int:
        loop, calls = asyncio.get_running_loop(), []
        call: Any = loop.call_soon_threadsafe

        def counted(*arguments: Any) -> Any:
            calls.append(arguments)
            return call(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        hearings = [Hearing(1) for _ in range(8)]
        listening = [asyncio.ensure_future(heard_by(each)) for each in hearings]
        await asyncio.sleep(0)
        for hearing in hearings:
            hearing.listeners[0].on_chunk(chunk(1))
        n_calls = len(calls)
        for hearing in hearings:
            hearing.listeners[0].on_end(DONE)
        assert await asyncio.gather(*listening) == [["1"]] * 8
        return n_calls

    assert asyncio.run(listen()) == 1


def test_waiting_for_a_while_says_whether_something_came() -> None:
    async def listen() -> list[bool]:
        hearing = Hearing(1)
        seen = [await hearing.wait(0.01)]
        asyncio.get_running_loop().call_later(0.01, hearing.listeners[0].on_chunk, chunk(1))
        seen.append(await hearing.wait(30))
        seen.append(await hearing.wait(30))  # nobody took it
        return seen

    assert asyncio.run(listen()) == [False, True, True]


def test_request_is_cancelled_when_nobody_can_hear_any_more() -> None:
    async def begin() -> list[Hearing]:
        return [Hearing(1), Hearing(1)]

    requests = FakeRequest(), FakeRequest()
    for hearing, request in zip(asyncio.run(begin()), requests, strict=True):
        [listener] = hearing.listeners
        listener.request = request  # type: ignore[assignment]
        listener.on_chunk(chunk(1))
        listener.on_chunk(chunk(2))
    assert [each.n_cancelled for each in requests] == [1, 1]


def test_loop_is_not_kept_by_those_that_listened() -> None:
    async def begin() -> tuple[Hearing, weakref.ref[Any]]:
        return Hearing(1), weakref.ref(asyncio.get_running_loop())

    hearing, loop = asyncio.run(begin())
    gc.collect()
    assert loop() is None
    [listener] = hearing.listeners
    listener.request = request = FakeRequest()  # type: ignore[assignment]
    listener.on_chunk(chunk(1))
    assert request.n_cancelled == 1


def test_answer_that_takes_too_long_ends_with_a_timeout() -> None:
    async def listen() -> None:
        hearing = Hearing(1, timeout=0.02)
        hearing.listeners[0].on_chunk(chunk(1))
        assert await hearing.wait(30)
        hearing.heard.clear()
        with pytest.raises(TimeoutError):
            await hearing.each(lambda: True)
        with pytest.raises(TimeoutError):
            await hearing.wait(30)

    asyncio.run(listen())


def test_what_fails_while_hearing_fails_for_who_waits() -> None:
    async def listen() -> int:
        hearing = Hearing(1)
        calls: list[int] = []

        def hear() -> bool:
            calls.append(len(hearing.heard))
            if hearing.heard:
                raise ValueError("broken")
            return True

        asyncio.get_running_loop().call_later(0.01, hearing.listeners[0].on_chunk, chunk(1))
        with pytest.raises(ValueError, match="broken"):
            await hearing.each(hear)
        hearing.listeners[0].on_chunk(chunk(2))  # nobody hears any more
        await asyncio.sleep(0.02)
        return len(calls)

    assert asyncio.run(listen()) == 2


def test_who_has_no_room_is_called_again_when_it_asks_to_be() -> None:
    async def listen() -> list[str]:
        hearing, texts = Hearing(1), list[str]()

        def hear() -> bool:
            if hearing.heard:
                texts.append(hearing.heard.popleft()[1].text)  # type: ignore[union-attr]
            return False

        for number in range(3):
            hearing.listeners[0].on_chunk(chunk(number))
        while hearing.heard:
            await hearing.each(hear)
        return texts

    assert asyncio.run(listen()) == ["0", "1", "2"]


def test_what_comes_while_it_hears_is_heard() -> None:
    async def listen() -> list[str]:
        hearing, texts = Hearing(1), list[str]()

        def hear() -> bool:
            while hearing.heard:
                texts.append(hearing.heard.popleft()[1].text)  # type: ignore[union-attr]
            if len(texts) == 1:
                hearing.listeners[0].on_chunk(chunk(2))  # after it looked
            return len(texts) < 2

        asyncio.get_running_loop().call_later(0.01, hearing.listeners[0].on_chunk, chunk(1))
        await asyncio.wait_for(hearing.each(hear), 10)
        return texts

    assert asyncio.run(listen()) == ["1", "2"]


def test_what_was_whole_at_the_deadline_is_no_timeout() -> None:
    async def listen() -> None:
        loop = asyncio.get_running_loop()
        hearing = Hearing(1, timeout=0.05)

        def hear() -> bool:
            if not hearing.heard:
                return True
            while loop.time() < hearing.deadline + 0.01:
                pass  # the deadline passes while it is told
            return False

        loop.call_later(0.01, hearing.listeners[0].on_chunk, chunk(1))
        await hearing.each(hear)

    asyncio.run(listen())


def test_others_have_their_turn_between_those_who_ring_at_once() -> None:
    async def listen() -> list[str]:
        hearing, order = Hearing(1), list[str]()

        def hear() -> bool:
            order.append("hears")
            asyncio.get_running_loop().call_soon(order.append, "another")
            hearing.ring()
            return len(order) < 6

        await hearing.each(hear)
        return order

    order = asyncio.run(listen())
    assert order[:4] == ["hears", "another"] * 2


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), GeneratorExit(), SystemExit()])
def test_whatever_ends_hearing_one_does_not_keep_others_from_being_heard(error: BaseException) -> None:
    async def listen() -> list[str]:
        bad, good = Hearing(1), Hearing(1)

        def fail() -> bool:
            if bad.heard:
                raise error
            return True

        listening = asyncio.ensure_future(heard_by(good))
        failing = asyncio.ensure_future(bad.each(fail))
        await asyncio.sleep(0)
        for hearing in (bad, good):
            hearing.listeners[0].on_chunk(chunk(1))
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await failing
        good.listeners[0].on_end(DONE)
        return await asyncio.wait_for(listening, 10)

    assert asyncio.run(listen()) == ["1"]
