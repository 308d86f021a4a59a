"""The platform calls where a system lacks one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from emel.io import platform
from emel.io.source import OpenSource, SourceContext, SourceMachine, SourceState, Strategy
from unit.io.sources import CONTENT

if TYPE_CHECKING:
    from pathlib import Path


def test_platform_reads_without_positioned_reads(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")
    machine = SourceMachine(SourceContext())
    machine.dispatch(OpenSource(str(model), Strategy.COPY))
    assert machine.state is SourceState.COPIED
    assert machine.context.view == memoryview(CONTENT)


def test_platform_without_an_advice_ignores_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(platform.ADVICE, "willneed", None)
    descriptor = platform.SYSTEM.open(str(model))
    with platform.SYSTEM.map(descriptor, len(CONTENT)) as mapping:
        platform.SYSTEM.close(descriptor)
        platform.SYSTEM.advise(mapping, "willneed", 1, len(CONTENT))  # an unaligned offset the system would refuse
        assert mapping[:] == CONTENT
        with pytest.raises(OSError, match="Invalid argument"):
            platform.SYSTEM.advise(mapping, "sequential", 1, 100)
