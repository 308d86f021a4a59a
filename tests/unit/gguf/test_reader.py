"""The reader machine: events out of place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.gguf.reader import CloseFile, PrefetchTensors, ReaderContext, ReaderMachine, ReaderState, ReadFile, VerifyFile
from emel.sm import UnexpectedEvent

if TYPE_CHECKING:
    from pathlib import Path


def test_reader_events_out_of_place_change_nothing(model: Path) -> None:
    machine = ReaderMachine(ReaderContext())
    for event in (VerifyFile(), PrefetchTensors(), CloseFile()):
        with pytest.raises(UnexpectedEvent):
            machine.dispatch(event)
        assert machine.state is ReaderState.IDLE
    machine.dispatch(ReadFile(str(model)))
    contents = machine.context.contents
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(ReadFile(str(model)))
    assert machine.state is ReaderState.READY
    assert machine.context.contents is contents
    machine.dispatch(CloseFile())
    with pytest.raises(UnexpectedEvent):
        machine.dispatch(VerifyFile())
    assert machine.state is ReaderState.CLOSED
