"""The end of the server: who is not answered within the time for it is told so.

Then uvicorn cancels what runs. Left to itself, that would be a traceback for each, a 500, and streams that break off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from emel.server import sse
from emel.server.errors import ApiError, is_anthropic
from emel.server.wire import hurry

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Ending:
    """ASGI middleware: what is cancelled is answered with 503, or with an error in the stream that has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen: list[Message] = []

        async def watched(message: Message) -> None:
            seen[1:] = [message]  # how it began, and what came last
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            hurry(scope)  # a client that does not read is not waited for any more
            error = ApiError(503, "the server ends: ask again once it is back", headers={"retry-after": "5"})
            if not seen:
                await error.response(scope)(scope, receive, send)
            elif _is_open_stream(seen):
                error.tell(scope)
                await send({"type": "http.response.body", "body": _event(error, scope), "more_body": False})


def _is_open_stream(seen: list[Message]) -> bool:
    """Whether events have begun and not ended."""
    kind = dict(seen[0]["headers"]).get(b"content-type")
    return kind == sse.CONTENT_TYPE.encode() and (len(seen) == 1 or bool(seen[-1].get("more_body")))


def _event(error: ApiError, scope: Scope) -> bytes:
    return sse.event(error.anthropic_body, "error") if is_anthropic(scope["path"]) else sse.event(error.body)
