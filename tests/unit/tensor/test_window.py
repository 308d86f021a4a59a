"""The streaming window: right bytes in every order, waits, repeats, refusals, completions that belong to nothing."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from emel._native import LIBRARY
from emel.io.errors import SourceError
from emel.io.lanes import LaneCalls, ReadLanes, Request
from emel.sm.external import ExternalCompletionPolicy, SourceFired
from emel.tensor.ring import SlotState
from emel.tensor.window import Acquire, Bind, State, Unbind
from emel.tensor.window_layout import WindowError
from unit.io.fakes import FaultyPlatform, n_open_descriptors
from unit.tensor.layered_file import FaultyReads, LayeredFile, Ring

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> LayeredFile:
    return LayeredFile(tmp_path / "layers")


@pytest.mark.parametrize("n_slots", [2, 3, 4])
@pytest.mark.parametrize("is_direct", [False, True])
def test_window_holds_the_packed_bytes_of_every_unit_over_several_passes(
    file: LayeredFile, n_slots: int, is_direct: bool
) -> None:
    with Ring(file, file.layout(n_slots), is_direct=is_direct) as ring:
        for _ in range(3):
            for unit in ring.layout.streamed:
                assert ring.acquire(unit) is None
        assert ring.context.n_repeats == ring.context.n_stray == 0


def test_window_streams_only_what_is_not_resident(file: LayeredFile) -> None:
    layout = file.layout(2, n_resident=2)
    assert len(layout.streamed) == 4
    with Ring(file, layout) as ring:
        for _ in range(2):
            for unit in layout.streamed:
                assert ring.acquire(unit) is None
        resident = next(iter(layout.resident))
        error = ring.acquire(resident)
        assert isinstance(error, WindowError)
        assert str(error) == f"unit {resident} is not streamed: 4 others are"
        assert ring.acquire(layout.streamed[0]) is None


def test_window_reads_ahead_after_a_jump_and_around_the_end(file: LayeredFile) -> None:
    with Ring(file, file.layout(3)) as ring:
        for unit in (0, 4, 5, 0, 3, 1, 1, 5, 2):
            assert ring.acquire(unit) is None
            wanted = {unit, (unit + 1) % 6, (unit + 2) % 6}
            while {slot.unit for slot in ring.context.ring.slots} != wanted:  # reads from before the jump end first
                assert ring.acquire(unit) is None


def test_window_does_not_overwrite_the_published_slot(file: LayeredFile) -> None:
    with Ring(file, file.layout(2)) as ring:
        for unit in range(6):
            assert ring.acquire(unit) is None
            published = ring.context.ring.published
            assert published is not None
            assert ring.context.reads is not None
            for slot in ring.context.ring.slots:
                while slot.state is SlotState.LOADING and slot.ticket != ring.context.reads.ticket_of(1 - published):
                    pass  # until what comes next was read
            ring.check(unit)


def test_acquire_waits_for_a_read_that_is_under_way(file: LayeredFile) -> None:
    gate, reads = threading.Event(), FaultyReads(file.path)

    def read(descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        assert gate.wait(10)
        return reads.read(descriptor, address, n_bytes, offset)

    with Ring(file, file.layout(2), calls=LaneCalls(read=read)) as ring:
        assert [slot.state for slot in ring.context.ring.slots] == [SlotState.LOADING] * 2
        opener = threading.Timer(0.02, gate.set)
        opener.start()
        assert ring.acquire(1) is None
        assert ring.context.n_waits == 1
        opener.join()


@pytest.mark.parametrize("n_failures", [1, 2, 3])
def test_a_read_is_repeated_once_then_the_request_fails_and_the_window_goes_on(
    file: LayeredFile, n_failures: int
) -> None:
    for fail_at in range(1, 14):
        reads = FaultyReads(file.path, fail_at, n_failures)
        with Ring(file, file.layout(2), calls=reads.calls) as ring:
            errors = [ring.acquire(unit % 6) for unit in range(24)]
            failed = [error for error in errors if error is not None]
            assert len(failed) <= n_failures - 1, "one failure is always made good"
            for error in failed:
                assert isinstance(error, SourceError)
                assert str(error).startswith(f"cannot read {str(file.path)!r} at byte ")
                assert str(error).endswith(os.strerror(reads.code))
            assert errors[-6:] == [None] * 6


def test_a_file_that_shrinks_fails_the_request_with_one_line(file: LayeredFile) -> None:
    with Ring(file, file.layout(2)) as ring:
        assert ring.acquire(0) is None
        whole = file.path.read_bytes()
        os.truncate(file.path, 2000)
        error = ring.acquire(5)
        assert isinstance(error, SourceError)
        assert str(error).startswith(f"{str(file.path)!r} shrank from {len(whole)} to at most ")
        assert ring.acquire(4) is not None
        with file.path.open("r+b") as again:
            again.write(whole)
        assert ring.acquire(5) is None


@pytest.mark.parametrize("change", [-10, 10])
def test_bind_refuses_a_file_of_another_size(file: LayeredFile, change: int) -> None:
    ring = Ring(file, file.layout(2))
    os.truncate(file.path, file.n_bytes + change)
    ring.machine.dispatch(ring.bind)
    assert isinstance(ring.context.error, SourceError)
    assert ("shrank" if change < 0 else "grew") in str(ring.context.error)
    assert (ring.machine.state, ring.context.reads) == (State.UNBOUND, None)


def test_every_call_of_the_platform_may_fail_in_bind(file: LayeredFile) -> None:
    before = n_open_descriptors()
    for fail_at in range(1, 5):
        platform = FaultyPlatform(fail_at)
        ring = Ring(file, file.layout(2), platform=platform)
        ring.machine.dispatch(ring.bind)
        if ring.context.error is not None:
            assert ring.machine.state is State.UNBOUND
            assert isinstance(ring.context.error, SourceError)
        else:
            assert ring.acquire(3) is None
            ring.machine.dispatch(Unbind())
        platform.assert_nothing_left()
    assert n_open_descriptors() == before


def test_a_refused_submit_is_a_failed_read(file: LayeredFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_lanes: ReadLanes, _ticket: int, _request: Request, *, is_urgent: bool) -> None:
        raise ValueError(f"no, {'urgent' if is_urgent else 'later'}")

    with Ring(file, file.layout(2)) as ring:
        assert ring.acquire(0) is None
        monkeypatch.setattr(ReadLanes, "submit", refuse)
        error = ring.acquire(4)
        assert isinstance(error, SourceError)
        assert str(error) == "a read was refused: no, urgent"


def test_completions_that_belong_to_nothing_change_nothing(file: LayeredFile) -> None:
    with Ring(file, file.layout(2)) as ring:
        assert ring.acquire(0) is None
        while any(slot.state is SlotState.LOADING for slot in ring.context.ring.slots):
            ring.acquire(0)
        before = [(slot.state, slot.unit, slot.ticket) for slot in ring.context.ring.slots]
        for source in (0, 1, 7, 63):
            ring.machine.dispatch(SourceFired(source))
        assert ring.context.n_stray == 4
        ring.context.ring.slots[1].state = SlotState.LOADING
        ring.context.ring.slots[1].ticket += 8  # of a later load
        ring.machine.dispatch(SourceFired(1))
        assert ring.context.n_stray == 5
        ring.context.ring.slots[1].state, ring.context.ring.slots[1].ticket = before[1][0], before[1][2]
        assert [(slot.state, slot.unit, slot.ticket) for slot in ring.context.ring.slots] == before
        assert ring.acquire(1) is None


def test_unbind_joins_reads_in_flight_and_bind_works_again(file: LayeredFile) -> None:
    before = n_open_descriptors(), threading.active_count()
    ring = Ring(file, file.layout(2))
    for _ in range(10):
        with ring:
            assert ring.acquire(3) is None
        ring = Ring(file, file.layout(2))
    assert (n_open_descriptors(), threading.active_count()) == before


def test_an_interrupted_wait_leaves_a_window_that_goes_on(file: LayeredFile) -> None:
    gate, reads = threading.Event(), FaultyReads(file.path)

    def read(descriptor: int, address: int, n_bytes: int, offset: int) -> int:
        assert gate.wait(10)
        return reads.read(descriptor, address, n_bytes, offset)

    with Ring(file, file.layout(2), calls=LaneCalls(read=read)) as ring:

        def interrupted(_policy: ExternalCompletionPolicy) -> object:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ExternalCompletionPolicy, "_await_lowest", interrupted)
            for unit in (1, 4):
                with pytest.raises(KeyboardInterrupt):
                    ring.machine.dispatch(Acquire(unit))
        assert ring.machine.state is State.WAITING
        gate.set()
        for unit in (4, 1, 2):
            assert ring.acquire(unit) is None


def test_acquire_allocates_nothing_natively(file: LayeredFile) -> None:
    with Ring(file, file.layout(2)) as ring:
        ring.acquire(0)
        before = LIBRARY.emel_allocation_count()
        for unit in range(12):
            assert ring.acquire(unit % 6) is None
        assert LIBRARY.emel_allocation_count() == before


def test_a_layout_that_fits_needs_no_window(file: LayeredFile) -> None:
    before = n_open_descriptors(), threading.active_count()
    ring = Ring(file, file.layout(2, n_resident=6))
    ring.machine.dispatch(ring.bind)
    assert ring.machine.state is State.RESIDENT
    assert (n_open_descriptors(), threading.active_count()) == before
    assert str(ring.acquire(0)) == "the window streams nothing: everything is in memory"
    ring.machine.dispatch(ring.bind)
    assert str(ring.context.error) == "the window is bound already: unbind it first"
    ring.machine.dispatch(Unbind())
    assert ring.machine.state is State.UNBOUND


def test_window_refuses_what_is_out_of_place(file: LayeredFile) -> None:
    ring = Ring(file, file.layout(2))
    for event in (Acquire(0), Unbind()):
        ring.machine.dispatch(event)
        assert str(ring.context.error) == "the window is not bound: bind it first"
    good = ring.bind
    for change, message in (
        ({"chunk_bytes": 1000}, "a chunk of 1000 bytes: 65536 to 16777216 are allowed"),
        ({"address": good.address + 8}, "are not aligned to 64 bytes"),
        ({"n_bytes": 100}, "the slots have 100 bytes of memory: "),
    ):
        fields = {name: getattr(good, name) for name in Bind.__slots__} | change
        ring.machine.dispatch(Bind(**fields))
        assert message in str(ring.context.error)
        assert ring.machine.state is State.UNBOUND
    with ring:
        ring.machine.dispatch(ring.bind)
        assert str(ring.context.error) == "the window is bound already: unbind it first"
        assert ring.acquire(2) is None
