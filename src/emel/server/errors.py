"""Errors on the wire: OpenAI's shape, the HTTP status being what counts.

{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from emel.errors import RequestError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}


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
            "type": type or _TYPES.get(status, "server_error"),
            "param": param,
            "code": code,
            **more,
        }

    @property
    def body(self) -> dict[str, Any]:
        """What is sent."""
        return {"error": self.error}

    def response(self) -> JSONResponse:
        """The whole response."""
        return JSONResponse(self.body, self.status, headers=self.headers)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request itself is at fault."""
    return ApiError(400, message, param=param, code=code)


def too_long(n_prompt: int, n_ctx: int) -> ApiError:
    """400: the prompt does not fit the context."""
    return ApiError(
        400,
        f"the prompt has {n_prompt} tokens, the context holds {n_ctx}: shorten it, or serve with a larger context",
        type="exceed_context_size_error",
        code="context_length_exceeded",
        n_prompt_tokens=n_prompt,
        n_ctx=n_ctx,
    )


def of_shape(error: ValidationError) -> ApiError:
    """400: the first field that is not as it must be, in one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(each) for each in first["loc"])
    seen = first.get("input")
    shown = "" if first["type"] == "missing" or isinstance(seen, dict) else f" (it is {_shown(seen)})"
    message = first["msg"][:1].lower() + first["msg"][1:]
    return invalid(f"{where}: {message}{shown}" if where else message, where or None)


def of_exception(error: BaseException) -> ApiError:
    """What a failure inside is on the wire: RequestError is the client's, everything else is ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        return invalid(str(error))
    if isinstance(error, ValidationError):
        return of_shape(error)
    if isinstance(error, TimeoutError):
        return ApiError(504, "the answer was not ready within the time this server gives a request")
    if isinstance(error, MemoryError):
        return ApiError(503, "the server has no memory left for this request: try again later")
    return ApiError(500, f"the request failed: {error}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
