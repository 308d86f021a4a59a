"""Errors on the wire: OpenAI's shape, or Anthropic's under its paths, the HTTP status being what counts.

{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
{"type": "error", "error": {"type": ..., "message": ...}}
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from emel.engine.arguments import checked_ids
from emel.engine.grammar_check import CheckerBusyError
from emel.errors import EmelError, ModelClosedError, RequestError
from emel.server import shape_errors
from emel.server.access_log import tell_error
from emel.text.constraint import ConstraintFailed
from emel.text.errors import NotFiniteError

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

_log = logging.getLogger("emel.server")
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
# https://docs.anthropic.com/en/api/errors
_ANTHROPIC_TYPES = {413: "request_too_large", 500: "api_error", 503: "overloaded_error"}
_ANTHROPIC_PATH = "/v1/messages"


_KINDS = (
    (ModelClosedError, "unloaded"),
    (NotFiniteError, "not_finite"),
    (ConstraintFailed, "constraint"),
    (MemoryError, "memory"),
    (TimeoutError, "timeout"),
    (OSError, "read"),
)
FAILURE_KINDS = (*dict.fromkeys(name for _, name in _KINDS), "internal")

_OURS = (NotFiniteError, MemoryError, OSError)  # what a RequestError that is no fault of the client's comes of


class ApiError(Exception):
    """An answer that is an error. `more` joins the error's fields, `headers` the response's."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        type: str | None = None,  # noqa: A002 - the field's own name
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.error = {
            "message": message,
            "type": type or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
            "param": param,
            "code": code,
            **more,
        }

    @property
    def body(self) -> dict[str, Any]:
        """What OpenAI's clients are sent."""
        return {"error": self.error}

    @property
    def anthropic_body(self) -> dict[str, Any]:
        """What Anthropic's clients are sent."""
        kind = _ANTHROPIC_TYPES.get(self.status) or _TYPES.get(self.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": self.error["message"]}}

    def tell(self, scope: Scope) -> None:
        """Has the access log told."""
        tell_error(scope, self.error["message"], self.error["code"] or self.error["type"])

    def response(self, scope: Scope) -> Response:
        """The whole response, in the shape of the path that was asked for; the access log is told."""
        self.tell(scope)
        body = self.anthropic_body if is_anthropic(scope.get("path", "")) else self.body
        return JSONResponse(body, self.status, headers=self.headers)


def is_anthropic(path: str) -> bool:
    """Whether errors have Anthropic's shape there: so they have at paths that are none, too."""
    return path == _ANTHROPIC_PATH or path.startswith(f"{_ANTHROPIC_PATH}/")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request itself is at fault."""
    return ApiError(400, message, param=param, code=code)


def checked_tokens(token_ids: object, n_vocab: int, param: str) -> list[int]:
    """Token ids of a field; ApiError 400 names it."""
    try:
        return checked_ids(token_ids, n_vocab)
    except RequestError as error:
        raise invalid(f"{param}: {error}", param) from None


def timed_out(seconds: float | None) -> ApiError:
    """504: the answer took longer than `seconds`, those of --timeout."""
    allowed = "the time this server gives a request" if seconds is None else f"{seconds:g} seconds"
    return ApiError(504, f"the answer was not ready within {allowed} (--timeout): ask for fewer tokens, or allow more")


def too_long(n_prompt: int, n_ctx: int, n_most: int, param: str | None = None) -> ApiError:
    """400: the prompt does not fit the context, which could have up to `n_most` tokens."""
    larger = f", or start the server with a larger context: -c N, up to {n_most}" if n_ctx < n_most else ""
    return ApiError(
        400,
        f"the prompt has {n_prompt} tokens, the context holds {n_ctx}: shorten it{larger}",
        type="exceed_context_size_error",
        code="context_length_exceeded",
        param=param,
        n_prompt_tokens=n_prompt,
        n_ctx=n_ctx,
    )


def of_shape(error: ValidationError) -> ApiError:
    """400: the first field that is not as it must be, in one line."""
    return invalid(*shape_errors.told(error))


def of_exception(error: BaseException) -> ApiError:
    """What a failure before an answer is on the wire: RequestError is the client's, unless it tells of a broken model
    or of memory and files; everything else is ours.

    So is a model that was unloaded while somebody had it.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EmelError):
        return _of_engine(error)
    if isinstance(error, ValidationError):
        return of_shape(error)
    if isinstance(error, TimeoutError):
        return timed_out(None)
    if isinstance(error, MemoryError):
        return ApiError(503, "the server has no memory left for this request: try again later")
    _log.error("a request failed", exc_info=error)
    return ApiError(500, f"the request failed: {type(error).__name__}; the server's log tells more")


def of_failure(error: Exception) -> ApiError:
    """What a request that ran and failed is on the wire: it was in order when it was taken, so the fault is ours."""
    cause = error.__cause__
    if isinstance(cause, ConstraintFailed):
        return invalid(str(cause))
    if isinstance(error, ModelClosedError):
        return _closed(error)
    if isinstance(cause, MemoryError):
        return ApiError(503, str(error), headers={"retry-after": "1"})
    return _failed(error)


def kind_of_failure(error: Exception) -> str:
    """What a request that ran failed of, in a word for metrics: few, and none of them a client's to choose."""
    cause = error.__cause__
    deeper = cause.__cause__ if cause is not None else None
    for each in (error, cause, deeper):
        for kind, name in _KINDS:
            if isinstance(each, kind):
                return name
    return "internal"


def _of_engine(error: EmelError) -> ApiError:
    if isinstance(error, ModelClosedError):
        return _closed(error)
    if isinstance(error, CheckerBusyError):
        return ApiError(503, str(error), headers={"retry-after": "5"})
    if not isinstance(error, RequestError):
        return _failed(error)
    cause = error.__cause__
    if isinstance(cause, _OURS):
        return of_failure(error)
    return invalid(str(error), error.param)


def _closed(error: ModelClosedError) -> ApiError:
    return ApiError(503, f"the model was unloaded meanwhile: {error}", headers={"retry-after": "1"})


def _failed(error: Exception) -> ApiError:
    return ApiError(500, f"the request failed: {error}")
