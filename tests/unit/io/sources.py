"""A byte source opened over a fake platform, and a look at how it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.io.errors import SourceError
from emel.io.source import OpenSource, SourceContext, SourceMachine, SourceState, Strategy
from unit.io.fakes import FaultyPlatform

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = bytes(range(256)) * 40
STRATEGIES = list(Strategy)


def opened(path: Path | str, strategy: Strategy, platform: FaultyPlatform | None = None) -> SourceMachine:
    machine = SourceMachine(SourceContext(platform=platform or FaultyPlatform()))
    machine.dispatch(OpenSource(str(path), strategy))
    return machine


def error_of(machine: SourceMachine) -> str:
    assert machine.state is SourceState.FAILED
    assert isinstance(machine.context.error, SourceError)
    assert machine.context.view is None
    line = str(machine.context.error)
    assert "\n" not in line
    return line
