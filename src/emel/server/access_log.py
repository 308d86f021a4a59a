"""The access log: one JSON line for each request, with what its answers took. ASGI middleware."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from emel.engine.results import Completion

_log = logging.getLogger("emel.access")
_QUIET_PATHS = frozenset({"/health", "/v1/health", "/metrics"})  # asked every few seconds


class AccessLog:
    """Logs each response when its last byte was sent, or when its client had gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on, and looks at the status."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        seen: dict[str, Any] = {"status": 499}
        told: dict[str, Any] = {}
        scope["emel.log"] = told

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._write(scope, seen["status"], time.perf_counter() - begin, told)

    def _write(self, scope: Scope, status: int, seconds: float, told: dict[str, Any]) -> None:
        app = scope.get("app")
        route = scope.get("route")
        if app is not None:
            path = route.path_format if route is not None else "other"  # not what clients make up
            app.state.metrics.responses.labels(path, str(status)).inc()
        level = logging.DEBUG if scope["path"] in _QUIET_PATHS else logging.INFO
        if _log.isEnabledFor(level):
            client = scope.get("client")
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1e3 * seconds, 1),
                **told,
            }
            _log.log(level, json.dumps(line))


def tell(scope: Scope, completions: list[Completion]) -> None:
    """Adds what the answers of a request took to its line."""
    told = scope.get("emel.log")
    if told is None or not completions:
        return
    first = completions[0]
    told.update(
        prompt_tokens=first.n_prompt_tokens,
        cached_tokens=first.n_cached_tokens,
        tokens=sum(len(each.token_ids) for each in completions),
        finish=[each.finish_reason for each in completions],
        queue_ms=round(1e3 * first.timings.queue_seconds, 1),
        ttft_ms=round(1e3 * first.timings.time_to_first_token, 1),
        decode_ms=round(1e3 * first.timings.decode_seconds, 1),
    )
