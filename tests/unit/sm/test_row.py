from __future__ import annotations

import functools

import pytest

from emel.sm import Row
from emel.sm.row import event_name, name_of
from unit.sm.samples import Begin, DownloadMachine, State, is_possible, start


def test_row_reads_as_source_event_guard_effect_destination() -> None:
    texts = [str(row) for row in DownloadMachine.TABLE]
    assert texts[0] == "IDLE + Begin [is_possible] / start -> READING"
    assert texts[3] == "READING + (completion) [has_all] -> CHECKING"
    assert texts[5] == "CHECKING + (completion) / complain -> FAILED"


def test_row_is_a_value_that_cannot_change() -> None:
    row = Row(State.IDLE, Begin, is_possible, start, State.READING)
    assert row == DownloadMachine.TABLE[0]
    with pytest.raises(AttributeError, match="cannot assign to field 'effect'"):
        row.effect = None  # type: ignore[misc]


def test_name_of_what_has_no_name_is_its_repr() -> None:
    partial = functools.partial(start)
    assert name_of(partial) == repr(partial)
    assert name_of(State.IDLE) == "IDLE"
    assert name_of(start) == "start"
    assert event_name(None) == "(completion)"
    assert event_name(Begin) == "Begin"
