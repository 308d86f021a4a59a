"""Transcripts in files: alone, in a whole answer, or in a stream of events that was saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emel.engine.transcript import Transcript
from emel.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DATA = "data:"  # begins an event's line (https://html.spec.whatwg.org/multipage/server-sent-events.html)
_HINT = 'a server\'s answer to a request with "transcript": true has one; of a stream all of it may be given'


def transcripts_in(text: str, path: str) -> list[tuple[int, Transcript]]:
    """Every transcript of a file's text, with the index of its choice; RequestError when there is none."""
    found = [(index, Transcript.from_json(each)) for given in _values(text, path) for index, each in _told(given)]
    if not found:
        raise RequestError(f"{path} has no transcript", hint=_HINT)
    return found


def _values(text: str, path: str) -> list[Any]:
    """The one JSON value, or those of the events."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError) as error:
        why = error
    lines = [line.removeprefix(_DATA).strip() for line in text.splitlines() if line.startswith(_DATA)]
    try:
        values = [json.loads(line) for line in lines if line != "[DONE]"]
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is a stream with an event that is no JSON: {error}", hint=_HINT) from None
    if not values:
        raise RequestError(f"{path} is neither JSON nor a stream of events: {why}", hint=_HINT)
    return values


def _told(given: Any) -> Iterator[tuple[int, Any]]:
    """Transcripts of an answer or of an event, or the value itself when it is one."""
    if not isinstance(given, dict):
        return
    if "steps" in given:
        yield 0, given
        return
    listed = given.get("choices")
    choices = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    if given.get("transcript"):
        yield _index(choices[0] if choices else {}), given["transcript"]
    for each in choices:
        if each.get("transcript"):
            yield _index(each), each["transcript"]


def _index(choice: dict[str, Any]) -> int:
    index = choice.get("index", 0)
    return index if isinstance(index, int) else 0
