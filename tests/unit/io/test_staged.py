"""Staged reads: what was asked for lies where it should, or an error says why; nothing stays open."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import pytest

from emel._native import NativeError
from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls, Part
from emel.io.staged import CloseStaged, OpenStaged, ReadMatrices, StagedContext, StagedMachine, StagedState
from emel.kernel.buffers import Memory
from unit.io.fakes import FaultyPlatform, n_open_descriptors
from unit.tensor.layered_file import FaultyReads, LayeredFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 16


class Target:
    """Memory for every matrix of a layered file, and what must lie there."""

    def __init__(self, file: LayeredFile) -> None:
        self.file, self.memory = file, Memory(1 << 20)
        self.parts: list[Part] = []
        offset = 0
        for extent in (each for unit in file.units for each in unit):
            place = (self.memory.address + offset, extent.packed_bytes)
            self.parts.append(Part(extent.offset, *place, extent.rows, extent.cols, int(extent.type)))
            offset += -(-extent.packed_bytes // 64) * 64

    def is_whole(self) -> bool:
        names = [extent.name for unit in self.file.units for extent in unit]
        return all(
            ctypes.string_at(part.address, part.n_bytes) == self.file.packed[name]
            for part, name in zip(self.parts, names, strict=True)
        )


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    target = Target(LayeredFile(tmp_path / "layers"))
    yield target
    target.memory.close()


def opened(
    target: Target, platform: FaultyPlatform | None = None, calls: LaneCalls | None = None, *, is_direct: bool = False
) -> StagedMachine:
    machine = StagedMachine(StagedContext(platform or FaultyPlatform(), calls or LaneCalls()))
    machine.dispatch(OpenStaged(target.file.parts, CHUNK, is_direct))
    return machine


@pytest.mark.parametrize("is_direct", [False, True])
@pytest.mark.parametrize("most_parts", [256, 1])
def test_staged_reads_and_packs(
    target: Target, is_direct: bool, most_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.io.staged.MOST_PARTS", most_parts)  # 1: more requests than are in flight at a time
    platform = FaultyPlatform()
    machine = opened(target, platform, is_direct=is_direct)
    machine.dispatch(ReadMatrices(tuple(target.parts)))
    assert (machine.state, machine.context.error) == (StagedState.READY, None)
    assert target.is_whole()
    machine.dispatch(CloseStaged())
    assert machine.state is StagedState.CLOSED
    platform.assert_nothing_left()


@pytest.mark.parametrize("n_failures", [1, 2, 3])
def test_staged_repeats_what_failed_once_and_stays_usable(
    target: Target, n_failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.io.staged.MOST_PARTS", 3)
    for fail_at in range(1, 6):
        reads = FaultyReads(target.file.path, fail_at, n_failures)
        machine = opened(target, calls=reads.calls)
        machine.dispatch(ReadMatrices(tuple(target.parts)))
        if n_failures == 1:
            assert machine.context.error is None
        if machine.context.error is None:
            assert target.is_whole()
        else:
            assert isinstance(machine.context.error, SourceError)
            assert str(machine.context.error).startswith("cannot read ")
        machine.dispatch(ReadMatrices(tuple(target.parts)))
        assert machine.context.error is None or fail_at + n_failures > reads.n_calls
        machine.dispatch(CloseStaged())


def test_staged_does_not_repeat_what_is_refused(target: Target) -> None:
    reads = FaultyReads(target.file.path)
    machine = opened(target, calls=reads.calls)
    machine.dispatch(ReadMatrices((target.parts[0]._replace(offset=1 << 40),)))
    assert isinstance(machine.context.error, NativeError)
    assert reads.n_calls == 0
    machine.dispatch(ReadMatrices(tuple(target.parts)))
    assert machine.context.error is None
    assert target.is_whole()
    machine.dispatch(CloseStaged())


def test_staged_fails_cleanly_at_every_call_of_the_platform(target: Target) -> None:
    before = n_open_descriptors(), threading.active_count()
    n_failed = 0
    for fail_at in range(1, 100):
        platform = FaultyPlatform(fail_at)
        machine = opened(target, platform)
        if machine.state is StagedState.FAILED:
            n_failed += 1
            assert isinstance(machine.context.error, SourceError)
        else:
            machine.dispatch(ReadMatrices(tuple(target.parts)))
            assert machine.context.error is None
            machine.dispatch(CloseStaged())
        platform.assert_nothing_left()
        if not platform.has_failed:
            break
    assert n_failed == 2  # opening and measuring
    assert (n_open_descriptors(), threading.active_count()) == before


def test_staged_whose_lanes_do_not_start_gives_the_files_up(target: Target) -> None:
    platform = FaultyPlatform()
    machine = StagedMachine(StagedContext(platform))
    machine.dispatch(OpenStaged(target.file.parts, CHUNK - 1))
    assert machine.state is StagedState.FAILED
    assert "a chunk of 65535 bytes" in str(machine.context.error)
    platform.assert_nothing_left()


@pytest.mark.parametrize("n_failures", [0, 1])
def test_staged_goes_on_after_an_interrupt(target: Target, n_failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first reading, or in the second one of what failed."""
    reads = FaultyReads(target.file.path, int(n_failures > 0), n_failures)
    machine = opened(target, calls=reads.calls)
    arrivals, waits = machine.context.arrivals, []
    wait = type(arrivals).wait

    def interrupted(self: object, ticket: int) -> SourceError | None:
        waits.append(ticket)
        if len(waits) == n_failures + 1:
            raise KeyboardInterrupt
        return wait(arrivals, ticket)

    monkeypatch.setattr(type(arrivals), "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.dispatch(ReadMatrices(tuple(target.parts)))
    machine.dispatch(ReadMatrices(tuple(target.parts)))
    assert machine.context.error is None
    assert target.is_whole()
    machine.dispatch(CloseStaged())
    assert machine.state is StagedState.CLOSED
