"""Answers of one request, heard together: in order, as far as there is room, and no longer than they may take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from emel.engine.results import Chunk
from emel.errors import RequestError
from emel.server.choices import Answer, Choices, Job
from emel.server.errors import ApiError
from emel.text.answers import PlainParser
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.server.hearing import Listener
    from emel.text.answers import Piece


class FakeObserver:
    """Notes what it saw."""

    def __init__(self) -> None:
        self.n_chunks = 0
        self.failures: list[Exception] = []

    def see(self, _chunk: Chunk) -> None:
        self.n_chunks += 1

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


class Told:
    """What was told, of whom; there is room as long as `has_room` says so."""

    def __init__(self, has_room: Callable[[], bool] = lambda: True) -> None:
        self.texts: list[tuple[int, str]] = []
        self._has_room = has_room

    def __call__(self, answer: Answer, _pieces: Sequence[Piece], chunk: Chunk) -> bool:
        self.texts.append((answer.index, chunk.text))
        return self._has_room()


def new_choices(model: FakeModel, n: int = 1, timeout: float | None = None) -> tuple[Choices, list[FakeObserver]]:
    observers = [FakeObserver() for _ in range(n)]
    job: Any = Job([1, 2], {}, PlainParser, n=n)
    return Choices(model, [job], timeout, observers, {}), observers  # type: ignore[arg-type]


def test_all_choices_are_told_in_the_order_they_came_in() -> None:
    async def hear() -> list[tuple[int, str]]:
        model, told = FakeModel(), Told()
        choices, observers = new_choices(model, 2)
        model.requests[1].listener.on_chunk(Chunk("b", (1,)))
        model.requests[0].say("a")
        asyncio.get_running_loop().call_later(0.02, model.requests[1].say, "B")
        assert not await choices.each(told)
        assert ["".join(each.text) for each in choices.answers] == ["a", "bB"]
        assert [each.n_chunks for each in observers] == [2, 3]
        return told.texts

    assert asyncio.run(hear()) == [(1, "b"), (0, "a"), (0, ""), (1, "B"), (1, "")]


def test_nothing_is_told_that_there_is_no_room_for() -> None:
    async def hear() -> list[int]:
        model, told = FakeModel(), Told(has_room=lambda: False)
        choices, _ = new_choices(model)
        model.requests[0].say(*"abc")
        n_told = []
        while await choices.each(told):
            n_told.append(len(told.texts))
            await asyncio.sleep(0.01)  # what rings meanwhile tells nothing
            assert len(told.texts) == n_told[-1]
        assert "".join(choices.answers[0].text) == "abc"
        return n_told

    assert asyncio.run(hear()) == [1, 2, 3, 4]


def test_a_failure_comes_after_what_came_before_it() -> None:
    async def hear(*, late: bool) -> list[tuple[int, str]]:
        model, told = FakeModel(), Told()
        choices, observers = new_choices(model, 2)

        def break_off() -> None:
            model.requests[0].listener.on_chunk(Chunk("a", (1,)))
            model.requests[0].fail(ValueError("broken"))

        if late:
            asyncio.get_running_loop().call_later(0.02, break_off)
        else:
            break_off()
        with pytest.raises(ApiError, match="broken"):
            await choices.each(told)
        assert [len(each.failures) for each in observers] == [1, 0]
        choices.close()
        assert model.requests[1].is_cancelled.is_set()
        return told.texts

    for late in (False, True):
        assert asyncio.run(hear(late=late)) == [(0, "a")]


def test_time_passes_for_who_waits_for_answers_and_for_who_waits_for_room() -> None:
    async def hear() -> list[Exception]:
        model = FakeModel()
        choices, observers = new_choices(model, timeout=0.05)
        model.requests[0].listener.on_chunk(Chunk("a", (1,)))
        assert await choices.each(Told(has_room=lambda: False))
        with pytest.raises(ApiError, match=r"within 0.05 seconds \(--timeout\)"):
            await choices.within_time(asyncio.sleep(60))
        with pytest.raises(ApiError, match=r"within 0.05 seconds \(--timeout\)"):
            await choices.each(Told())
        choices.close()
        return observers[0].failures

    assert [type(each) for each in asyncio.run(hear())] == [TimeoutError] * 2


def test_who_is_refused_when_submitted_takes_no_place_and_who_runs_has_his_until_he_is_over() -> None:
    async def n_taken() -> list[int]:
        model = FakeModel()
        taken: set[Listener] = set()
        jobs = [Job(ids, {}, PlainParser) for ids in ([1, 2], [model.n_vocab])]
        with pytest.raises(RequestError):
            Choices(model, jobs, None, [FakeObserver()] * 2, {}, taken=taken)  # type: ignore[arg-type, list-item]
        counts = [len(taken)]
        Choices(model, jobs[:1], None, [FakeObserver()], {}, taken=taken)  # type: ignore[arg-type, list-item]
        counts.append(len(taken))
        model.requests[-1].say("a")  # nobody has heard it yet
        return [*counts, len(taken)]

    assert asyncio.run(n_taken()) == [0, 1, 0]


def test_much_that_is_there_lets_others_have_their_turn() -> None:
    async def hear() -> tuple[int, int]:
        model, told, n_told = FakeModel(), Told(), list[int]()
        choices, _ = new_choices(model)
        model.requests[0].say(*("a" * 1000))
        asyncio.get_running_loop().call_soon(lambda: n_told.append(len(told.texts)))
        assert not await choices.each(told)
        return n_told[0], len(told.texts)

    n_first, n_all = asyncio.run(hear())
    assert n_first < n_all
    assert n_all == 1001
