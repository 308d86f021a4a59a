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
_TOLD = "emel.log"  # what is told of a request, in its scope
_MOST_CHARACTERS = 300
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
        scope[_TOLD] = told

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # of ours: whoever is outside answers it, and logs it whole
            if seen["status"] == 499:
                seen["status"] = 500
            tell_error(scope, f"the request failed: {type(error).__name__}", "server_error")
            raise
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
                "time": _time(time.time()),
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1e3 * seconds, 1),
                **told,
            }
            _log.log(level, json.dumps(line))


class JsonLines(logging.Formatter):
    """One JSON object a line: those of the access log as they are, of others time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line; what raised is told in its field `trace`."""
        message = record.getMessage()
        if record.name == _log.name:
            return message
        line = {"time": _time(record.created), "level": record.levelname.lower(), "message": message}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def tell_model(scope: Scope, name: str) -> None:
    """Adds the model that a request is for to its line."""
    scope.get(_TOLD, {})["model"] = name


def tell_error(scope: Scope, message: str, code: str) -> None:
    """Adds why a request was refused, or a stream broke off, to its line."""
    short = message if len(message) <= _MOST_CHARACTERS else f"{message[:_MOST_CHARACTERS]}..."
    scope.get(_TOLD, {}).update(error=short, code=code)


def tell(scope: Scope, completions: list[Completion]) -> None:
    """Adds what the answers of a request took to its line."""
    told = scope.get(_TOLD)
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
