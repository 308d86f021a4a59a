"""Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html. Pure: values in, bytes out."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
CONTENT_TYPE = "text/event-stream; charset=utf-8"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Events:
    """Events that begin with the same fields, which are written once."""

    def __init__(self, head: dict[str, Any]) -> None:
        """head: at least one field."""
        self._start = f"data: {_encode(head)[:-1]},"

    def event(self, **fields: Any) -> bytes:
        """One event: the head, and at least one more field."""
        return f"{self._start}{_encode(fields)[1:]}\n\n".encode("utf-8", "replace")


def event(data: Any, name: str | None = None) -> bytes:
    """One event. JSON has no line breaks, so one data line holds it; surrogates cannot be sent and become U+FFFD."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {_encode(data)}\n\n".encode("utf-8", "replace")
