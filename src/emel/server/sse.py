"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html. Pure: values in, bytes out."""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
CONTENT_TYPE = "text/event-stream; charset=utf-8"

_MARK = "\0the text\0"  # which is in nothing else
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Events:
    """Events that begin with the same fields, which are written once."""

    def __init__(self, head: dict[str, Any]) -> None:
        """head: at least one field."""
        self._start = f"data: {_encode(head)[:-1]},"

    def event(self, **fields: Any) -> bytes:
        """One event: the head, and at least one more field."""
        return f"{self._start}{_encode(fields)[1:]}\n\n".encode("utf-8", "replace")


class TextEvents:
    """Events of which only one text differs: what stands around it is written once."""

    def __init__(self, event_of: Callable[[str], bytes]) -> None:
        """event_of: makes the event of a text, which stands in it once."""
        self._before, self._after = event_of(_MARK).split(_encode(_MARK).encode())

    def event(self, text: str) -> bytes:
        """The event of a text."""
        return self._before + encode_basestring(text).encode("utf-8", "replace") + self._after


def event(data: Any, name: str | None = None) -> bytes:
    """One event. JSON has no line breaks, so one data line holds it; surrogates cannot be sent and become U+FFFD."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {_encode(data)}\n\n".encode("utf-8", "replace")
