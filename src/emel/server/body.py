"""Bodies of requests: read within the limit, parsed as JSON, checked against their shape."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from emel.server.errors import ApiError, invalid, of_shape
from emel.server.sampling import Shape

if TYPE_CHECKING:
    from starlette.requests import Request

S = TypeVar("S", bound=Shape)
_log = logging.getLogger("emel.server")


async def read_shape(request: Request, shape: type[S]) -> S:
    """The body as `shape`; ApiError 400 for what is no JSON or not of the shape, 413 for too much of it."""
    data = await read_json(request)
    try:
        found = shape.model_validate(data)
    except ValidationError as error:
        raise of_shape(error) from None
    if unknown := found.unknown():
        _log.debug("%s: fields without meaning here: %s", request.url.path, ", ".join(unknown))
    return found


async def read_json(request: Request) -> Any:
    """The body as JSON."""
    limit: int = request.app.state.settings.max_body_bytes
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise ApiError(413, f"the body has more than {limit} bytes, which is what this server takes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply or is no UTF-8"
        raise invalid(f"the body is not valid JSON: {reason}") from None
