from __future__ import annotations

import pytest

from emel.sm.traps import Checkpoint, RunLanes, checkpoint, run_lanes


def test_checkpoint_yields_its_trap_once_and_gives_nothing() -> None:
    waiting = checkpoint()
    assert waiting.send(None) == Checkpoint()
    with pytest.raises(StopIteration) as stop:
        waiting.send("ignored")
    assert stop.value.value is None


def test_run_lanes_yields_the_calls_and_gives_the_answer() -> None:
    calls = [dict, list]
    waiting = run_lanes(calls)
    trap = waiting.send(None)
    assert isinstance(trap, RunLanes)
    assert trap.calls is calls
    with pytest.raises(StopIteration) as stop:
        waiting.send([1, 2])
    assert stop.value.value == [1, 2]


def test_traps_may_be_awaited() -> None:
    async def effect() -> list[int]:
        await checkpoint()
        return await run_lanes([lambda: 7])

    coroutine = effect()
    assert coroutine.send(None) == Checkpoint()
    assert isinstance(coroutine.send(None), RunLanes)
    with pytest.raises(StopIteration) as stop:
        coroutine.send([7])
    assert stop.value.value == [7]
