"""Byte sources: the strategy chosen by guards, and a fault loop that leaves nothing open."""

from __future__ import annotations

import errno
import gc
import os
from typing import TYPE_CHECKING

import pytest

from emel.io.mapped import Advise
from emel.io.source import CloseSource, OpenSource, SourceMachine, SourceState, Strategy, VerifySource
from emel.sm import UnexpectedEvent
from unit.io.fakes import FaultyPlatform, n_open_descriptors
from unit.io.sources import CONTENT, STRATEGIES, error_of, opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_source_gives_the_files_bytes_read_only(model: Path, strategy: Strategy) -> None:
    platform = FaultyPlatform()
    machine = opened(model, strategy, platform)
    assert machine.state is (SourceState.COPIED if strategy is Strategy.COPY else SourceState.MAPPED)
    view = machine.context.view
    assert view is not None
    assert view == CONTENT
    assert view.readonly
    assert not platform.open_descriptors
    del view
    machine.dispatch(CloseSource())
    assert machine.state is SourceState.CLOSED
    platform.assert_nothing_left()


def test_source_copies_what_cannot_be_mapped(model: Path) -> None:
    platform = FaultyPlatform(fail_at=3, code=errno.ENODEV)
    machine = opened(model, Strategy.AUTO, platform)
    assert platform.calls[2] == "map"
    assert machine.state is SourceState.COPIED
    assert machine.context.view == memoryview(CONTENT)
    assert not platform.open_descriptors


@pytest.mark.parametrize("n_bytes", [2**62, 2**100])
@pytest.mark.parametrize("strategy", [Strategy.MAP, Strategy.COPY])
def test_source_sizes_beyond_memory_are_an_error(model: Path, strategy: Strategy, n_bytes: int) -> None:
    class Huge(FaultyPlatform):
        def status(self, descriptor: int) -> os.stat_result:
            fields = list(super().status(descriptor))
            fields[6] = n_bytes
            return os.stat_result(fields)

    platform = Huge()
    assert str(n_bytes) in error_of(opened(model, strategy, platform))
    platform.assert_nothing_left()


def test_source_is_for_one_file(model: Path) -> None:
    machine = opened(model, Strategy.MAP)
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(OpenSource(str(model)))
    machine.dispatch(CloseSource())
    for event in (OpenSource(str(model)), VerifySource(), CloseSource()):
        with pytest.raises(UnexpectedEvent):
            machine.dispatch(event)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_source_views_outlive_it(model: Path, strategy: Strategy) -> None:
    gc.collect()
    before = n_open_descriptors()
    machine = opened(model, strategy)
    assert machine.context.view is not None
    part = machine.context.view[1:4]
    machine.dispatch(CloseSource())
    assert bytes(part) == CONTENT[1:4]
    del part
    gc.collect()
    assert n_open_descriptors() == before


def whole_life(path: Path, strategy: Strategy, platform: FaultyPlatform) -> SourceMachine:
    """Opens, advises, verifies and closes, as far as the machine goes."""
    machine = opened(path, strategy, platform)
    events = [Advise("willneed", 0, 4096), VerifySource(), CloseSource()]
    for event in events:
        if machine.state is SourceState.FAILED:
            break
        machine.dispatch(event)
    return machine


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM, errno.EMFILE])
def test_source_fails_cleanly_at_every_call(model: Path, strategy: Strategy, code: int) -> None:
    gc.collect()
    before = n_open_descriptors()
    n_failed = 0
    for fail_at in range(1, 100):
        platform = FaultyPlatform(fail_at, code)
        machine = whole_life(model, strategy, platform)
        assert machine.state in {SourceState.FAILED, SourceState.CLOSED}
        is_quarantined = platform.has_failed and platform.calls[fail_at - 1] == "unmap"
        if machine.state is SourceState.FAILED:
            n_failed += 1
            assert str(model) in error_of(machine)
        platform.assert_nothing_left(int(is_quarantined))
        assert (machine.context.mapping is not None) == is_quarantined
        if not platform.has_failed:
            break
    else:
        pytest.fail("no run passed")
    assert n_failed >= 3
    del machine
    gc.collect()
    assert n_open_descriptors() == before
