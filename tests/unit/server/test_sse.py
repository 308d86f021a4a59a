from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.server import sse

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(SCALARS, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=8)


@given(JSON)
def test_an_event_is_one_data_line_that_reads_back(value: object) -> None:
    body = sse.event(value)
    assert body.startswith(b"data: ")
    assert body.endswith(b"\n\n")
    assert body.count(b"\n") == 2
    assert json.loads(body[6:]) == value


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_surrogates_do_not_stop_a_stream(text: str) -> None:
    assert json.loads(sse.event(text)[6:]) == text.encode("utf-8", "replace").decode()


def test_a_named_event_says_its_name_first() -> None:
    assert sse.event({"a": 1}, "message_start") == b'event: message_start\ndata: {"a":1}\n\n'


@given(st.dictionaries(st.text(), JSON, min_size=1), JSON)
def test_events_with_a_common_head_are_events(head: dict[str, object], value: object) -> None:
    body = sse.Events(head).event(value=value)
    assert body.count(b"\n") == 2
    assert json.loads(body[6:]) == {**head, "value": value}


@given(st.text())
def test_an_event_of_one_text_is_what_it_is_when_made_anew(text: str) -> None:
    def event_of(text: str) -> bytes:
        return sse.Events({"id": 1}).event(choices=[{"index": 0, "text": text, "logprobs": None}])

    assert sse.TextEvents(event_of).event(text) == event_of(text)
