"""The gate: who may come in, and with how much. ASGI middleware before every endpoint."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from emel.server.errors import ApiError
from emel.server.page_files import NAMES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from emel.server.settings import Settings

_CLOSE = {"connection": "close"}  # what is not read of a body would keep the connection open, as slowly as it comes
_OPEN_PATHS = frozenset({"/", "/health", "/v1/health", *(f"/page/{name}" for name in NAMES)})


class Gate:
    """Asks for a key where keys are set, and refuses a body by the length it announces."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._keys = [key.encode() for key in settings.api_keys]
        self._max_body_bytes = settings.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets through, or answers 401 or 413 itself."""
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response(scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = {name: value for name, value in scope["headers"] if name in _HEADERS}
        if self._keys and scope["path"] not in _OPEN_PATHS and not self._is_known(headers):
            seen = "the API key sent is none of this server's" if any(_sent(headers)) else "an API key is needed"
            return ApiError(
                401,
                f"{seen}: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer", **_CLOSE}
                if _has_body(scope)
                else {"www-authenticate": "Bearer"},
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            message = f"the body has {int(length)} bytes: this server takes {self._max_body_bytes}"
            return ApiError(413, message, headers=_CLOSE)
        return None

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Compares with every key, each in constant time, so that the time tells nothing of them."""
        return sum([hmac.compare_digest(each, key) for each in _sent(headers) for key in self._keys]) > 0


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in scope["headers"])


def _sent(headers: dict[bytes, bytes]) -> list[bytes]:
    """The keys in the headers, which may be empty."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    sent = [bearer.strip()] if scheme.lower() == b"bearer" else []
    return [*sent, headers.get(b"x-api-key", b"")]


_HEADERS = frozenset({b"authorization", b"x-api-key", b"content-length"})
