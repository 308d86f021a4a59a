from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emel.sm import CoMachine, FramePool, FramesExhausted, Row
from emel.sm.fifo import FifoPolicy
from emel.sm.frames import DEFAULT_N_FRAMES, FRAMES
from emel.sm.policies import INLINE, InlinePolicy
from unit.sm.samples import (
    Begin,
    ChunkRead,
    Context,
    DownloadCoMachine,
    Flip,
    ReadFailed,
    State,
    Switch,
    SwitchContext,
    flip,
)

if TYPE_CHECKING:
    from emel.sm.policies import SchedulerPolicy

MACHINE = DownloadCoMachine(Context())
POLICIES = [INLINE, InlinePolicy(), FifoPolicy()]


def taken(pool: FramePool) -> Any:
    frame = pool.take(MACHINE)
    assert frame is not None
    return frame


def test_frames_are_taken_last_in_first_out() -> None:
    pool = FramePool(3)
    first, second = taken(pool), taken(pool)
    assert (first.index, second.index, pool.n_free) == (0, 1, 1)
    pool.give(first)
    assert taken(pool) is first
    pool.give(second)
    pool.give(first)
    assert [taken(pool), taken(pool)] == [first, second]
    assert pool.holders == (MACHINE, MACHINE)


def test_exhausted_pool_gives_nothing_and_never_grows() -> None:
    pool = FramePool(1)
    frame = taken(pool)
    assert pool.take(MACHINE) is None
    assert (pool.n_frames, pool.n_free) == (1, 0)
    pool.give(frame)
    assert taken(pool) is frame


def test_frame_is_given_back_once_and_to_its_own_pool() -> None:
    pool, other = FramePool(2), FramePool(1)
    frame = taken(pool)
    foreign = taken(other)
    with pytest.raises(ValueError, match="frame 0 was not taken from this pool"):
        pool.give(foreign)
    pool.give(frame)
    with pytest.raises(ValueError, match="or was given back already"):
        pool.give(frame)
    assert pool.n_free == 2


def test_pool_of_no_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame pool of 0 frames could run nothing"):
        FramePool(0)


@pytest.mark.parametrize("policy", POLICIES, ids=["inline", "by the core", "fifo"])
def test_dispatch_without_a_frame_is_rejected_and_changes_nothing(policy: SchedulerPolicy) -> None:
    pool = FramePool(2)
    machine = DownloadCoMachine(Context(), policy, pool)
    held = [taken(pool), taken(pool)]
    assert machine.dispatch(Begin(1)) is False
    assert machine.dispatch_async(Begin(1)).result() is False
    assert (machine.state, machine.context, machine.is_running) == (State.IDLE, Context(), False)
    pool.give(held.pop())
    assert machine.dispatch(Begin(1)) is True
    assert pool.n_free == 1


@pytest.mark.parametrize("policy", POLICIES, ids=["inline", "by the core", "fifo"])
def test_frame_is_given_back_however_a_run_ends(policy: SchedulerPolicy) -> None:
    pool = FramePool(1)
    machine = DownloadCoMachine(Context(), policy, pool)
    for _ in range(3):
        with pytest.raises(Exception, match="got unexpected ReadFailed"):
            machine.dispatch(ReadFailed())
        assert pool.n_free == 1
    machine.dispatch(Begin(1))
    for data in (b"early", b"poison"):
        with pytest.raises(ValueError, match="poisoned"):
            machine.dispatch(ChunkRead(data))
        assert pool.n_free == 1
    assert machine.dispatch(ChunkRead()) is True
    assert (pool.n_free, pool.holders) == (1, ())


def test_frames_bound_the_depth_of_dispatches_that_wait() -> None:
    pool = FramePool(2)
    answers: list[bool] = []

    async def flip_next(context: SwitchContext, event: Flip) -> None:
        context.run()

    class NestedMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (Row(Switch.OFF, Flip, None, flip_next, Switch.ON),)

    third = NestedMachine(SwitchContext(), frames=pool)
    second = NestedMachine(SwitchContext(lambda: answers.append(third.dispatch(Flip()))), frames=pool)
    first = NestedMachine(SwitchContext(lambda: answers.append(second.dispatch(Flip()))), frames=pool)
    assert first.dispatch(Flip()) is True
    assert answers == [False, True]
    assert [each.state for each in (first, second, third)] == [Switch.ON, Switch.ON, Switch.OFF]


def test_effect_that_waits_unannounced_needs_a_frame_too() -> None:
    pool = FramePool(1)
    log: list[str] = []

    async def later(context: SwitchContext, event: Flip) -> None:
        log.append("ran")

    def flip_later(context: SwitchContext, event: Flip) -> Any:
        return later(context, event)

    class SecretMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (
            Row(Switch.OFF, Flip, None, flip_later, Switch.ON),
            Row(Switch.ON, None, None, flip_later, Switch.OFF),
        )

    machine = SecretMachine(SwitchContext(), frames=pool)
    assert not SecretMachine.WAITS
    frame = taken(pool)
    with pytest.raises(FramesExhausted, match=r"<SecretMachine OFF> has no frame to wait in: all 1 are taken"):
        machine.dispatch(Flip())
    assert (machine.state, machine.is_running, log) == (Switch.OFF, False, [])
    pool.give(frame)
    assert machine.dispatch(Flip()) is True
    assert (log, machine.state, pool.n_free) == (["ran", "ran"], Switch.OFF, 1)


def test_completion_row_may_be_the_first_that_waits_unannounced() -> None:
    pool = FramePool(1)

    async def later(context: SwitchContext) -> None:
        context.n_flips += 10

    def flip_later(context: SwitchContext, event: Flip) -> Any:
        return later(context)

    class SecretMachine(CoMachine[Switch, SwitchContext]):
        INITIAL = Switch.OFF
        TABLE = (
            Row(Switch.OFF, Flip, None, flip, Switch.ON),
            Row(Switch.ON, None, None, flip_later, Switch.OFF),
        )

    machine = SecretMachine(SwitchContext(), frames=pool)
    assert machine.dispatch(Flip()) is True
    assert (machine.context.n_flips, machine.state, pool.n_free) == (11, Switch.OFF, 1)
    frame = taken(pool)
    with pytest.raises(FramesExhausted, match="<SecretMachine ON> has no frame"):
        machine.dispatch(Flip())
    assert (machine.state, machine.is_running) == (Switch.ON, False)
    pool.give(frame)


def test_machines_share_sixty_four_frames_unless_told_otherwise() -> None:
    machine = DownloadCoMachine(Context())
    assert machine.frames is FRAMES
    assert machine.scheduler is INLINE
    assert FRAMES.n_frames == DEFAULT_N_FRAMES == 64
    pool, policy = FramePool(2), FifoPolicy()
    other = DownloadCoMachine(Context(), policy, pool)
    assert (other.frames, other.scheduler) == (pool, policy)
