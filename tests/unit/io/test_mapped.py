"""Mappings: advice, files that change size, what cannot be mapped."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from emel.io.mapped import (
    Advise,
    CloseMapping,
    MappingContext,
    MappingMachine,
    MappingState,
    OpenMapping,
    VerifyMapping,
)
from emel.io.source import SourceState, Strategy, VerifySource
from emel.sm import UnexpectedEvent
from unit.io.fakes import FaultyPlatform
from unit.io.sources import CONTENT, error_of, opened

if TYPE_CHECKING:
    from pathlib import Path


def test_mapped_told_to_map_does_not_copy(model: Path) -> None:
    machine = opened(model, Strategy.MAP, FaultyPlatform(fail_at=3, code=errno.ENODEV))
    assert error_of(machine) == f"cannot map {str(model)!r} ({len(CONTENT)} bytes): {os.strerror(errno.ENODEV)}"


def test_mapped_a_file_that_shrinks_is_an_error_not_a_crash(model: Path) -> None:
    machine = opened(model, Strategy.MAP)
    machine.dispatch(VerifySource())
    assert machine.state is SourceState.MAPPED
    os.truncate(model, 100)
    machine.dispatch(VerifySource())
    assert "shrank from 10240 to 100 bytes while it was in use: fetch it again" in error_of(machine)


def test_mapped_a_file_that_grows_is_fine(model: Path) -> None:
    machine = opened(model, Strategy.MAP)
    os.truncate(model, 1 << 20)
    machine.dispatch(VerifySource())
    assert machine.state is SourceState.MAPPED


@pytest.mark.parametrize("advice", ["sequential", "willneed", "dontneed"])
def test_mapped_passes_advice_on_in_whole_pages(model: Path, advice: str) -> None:
    machine = opened(model, Strategy.MAP)
    machine.dispatch(Advise(advice, 5000, 5240))
    assert machine.context.mapping is not None
    assert machine.context.mapping.context.n_refused == 0
    assert machine.context.view == memoryview(CONTENT)


def test_mapped_refused_advice_does_no_harm(model: Path) -> None:
    platform = FaultyPlatform()
    machine = opened(model, Strategy.MAP, platform)
    platform.fail_at = platform.n_calls + 1
    machine.dispatch(Advise("willneed", 0, 100))
    assert platform.calls[-1] == "advise"
    assert machine.state is SourceState.MAPPED
    assert machine.context.mapping is not None
    assert machine.context.mapping.context.n_refused == 1


@pytest.mark.parametrize(
    "event",
    [
        Advise("random", 0, 10),
        Advise("willneed", -1, 10),
        Advise("willneed", 0, 0),
        Advise("willneed", 0, len(CONTENT) + 1),
        Advise("willneed", len(CONTENT), 1),
    ],
)
def test_mapped_advice_outside_the_bytes_is_illegal(model: Path, event: Advise) -> None:
    platform = FaultyPlatform()
    machine = opened(model, Strategy.MAP, platform)
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(event)
    assert machine.state is SourceState.MAPPED
    assert "advise" not in platform.calls


@pytest.mark.parametrize("is_shrunk", [False, True])
def test_mapped_a_mapping_that_is_not_taken_back_is_quarantined(model: Path, is_shrunk: bool) -> None:
    platform = FaultyPlatform()
    machine = MappingMachine(MappingContext(platform))
    machine.dispatch(OpenMapping(str(model)))
    mapping = machine.context.mapping
    assert mapping is not None
    if is_shrunk:
        os.truncate(model, 100)
    platform.fail_at = platform.n_calls + (2 if is_shrunk else 1)
    machine.dispatch(VerifyMapping() if is_shrunk else CloseMapping())
    assert platform.calls[-1] == "unmap"
    assert machine.state is (MappingState.FAILED if is_shrunk else MappingState.QUARANTINED)
    assert (machine.context.view, machine.context.mapping) == (None, None)
    assert machine.context.quarantined is mapping
    for event in (Advise("willneed", 0, 1), VerifyMapping(), CloseMapping()):
        with pytest.raises(UnexpectedEvent):
            machine.dispatch(event)
    platform.assert_nothing_left(1)
    mapping.close()
