from __future__ import annotations

from emel.sm.traps import Checkpoint, RunLanes, checkpoint, run_lanes


def test_checkpoint_yields_its_trap_once_and_gives_nothing() -> None:
    waiting = checkpoint()
    assert waiting.send(None) == Checkpoint()
    try:
        waiting.send("ignored")
    except StopIteration as stop:
        assert stop.value is None
    else:
        raise AssertionError("it yielded twice")


def test_run_lanes_yields_the_calls_and_gives_the_answer() -> None:
    calls = [dict, list]
    waiting = run_lanes(calls)
    trap = waiting.send(None)
    assert isinstance(trap, RunLanes)
    assert trap.calls is calls
    try:
        waiting.send([1, 2])
    except StopIteration as stop:
        assert stop.value == [1, 2]
    else:
        raise AssertionError("it yielded twice")


def test_traps_may_be_awaited() -> None:
    async def effect() -> list[int]:
        await checkpoint()
        return await run_lanes([lambda: 7])

    coroutine = effect()
    assert coroutine.send(None) == Checkpoint()
    assert isinstance(coroutine.send(None), RunLanes)
    try:
        coroutine.send([7])
    except StopIteration as stop:
        assert stop.value == [7]
    else:
        raise AssertionError("it yielded again")
