"""Bodies of requests: read within the limits, parsed as JSON, checked against their shape.

JSON is RFC 8259's: no NaN, no infinity (1e999 is one), no half of a surrogate pair, no name twice in an object. What
others read into those differs, and none of them can be answered with JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import ValidationError

from emel.server.errors import ApiError, invalid, of_shape
from emel.server.shape import Shape

if TYPE_CHECKING:
    from starlette.requests import Request

S = TypeVar("S", bound=Shape)
_log = logging.getLogger("emel.server")

MAX_DEPTH = 128
"""Objects and lists inside each other: recursive code behind this (templates, schemas) takes that many."""
_LONG = 64 << 10
"""Bytes from which parsing is for another thread: answers of others are on the event loop."""
_MOST_UNKNOWN = 5
"""Fields of a request that are compared with those there are, and below how many warnings there can be: clients make
names up."""
_MOST_WARNED = 1000
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_shape(request: Request, shape: type[S]) -> S:
    """The body as `shape`; ApiError 400 for what is no such thing, 408 for one that does not come, 413 for too much."""
    body = await _read(request)
    found = await asyncio.to_thread(_shaped, body, shape) if len(body) > _LONG else _shaped(body, shape)
    if unknown := found.unknown():
        _log.debug("%s: fields without meaning here: %.1000s", request.url.path, ", ".join(unknown))
        _warn_of_near_misses(request, shape, unknown[:_MOST_UNKNOWN])
    return found


def parse(body: bytes | bytearray) -> Any:
    """JSON of bytes; ApiError 400."""
    try:
        found = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
        _check_depth(body, found)
        if _SURROGATE.search(body):
            json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        reason = str(error)
    except UnicodeDecodeError:
        reason = "it is no UTF-8"
    except UnicodeEncodeError:
        reason = "it has half of a surrogate pair, which is no character"
    except RecursionError:
        reason = _TOO_DEEP
    except ValueError as error:
        reason = str(error).partition(";")[0]
    else:
        return found
    raise invalid(f"the body is not valid JSON: {reason}")


def _warn_of_near_misses(request: Request, shape: type[Shape], unknown: list[str]) -> None:
    """Of what is no field here, but nearly one, once for each name and path."""
    warned: set[tuple[str, str]] = request.app.state.warned
    for name in unknown:
        key = (request.url.path, name)
        if len(warned) < _MOST_WARNED and key not in warned and (meant := shape.nearest(name)) is not None:
            warned.add(key)
            _log.warning("%s: %r is no field and was passed over: did you mean %r?", *key, meant)


async def _read(request: Request) -> bytearray:
    settings = request.app.state.settings
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body_bytes:
                    message = f"the body has more than {settings.max_body_bytes} bytes, which is what this server takes"
                    raise ApiError(413, message, headers={"connection": "close"})
    except TimeoutError:
        message = f"the body was not there within {settings.body_seconds:g} seconds"
        raise ApiError(408, message, headers={"connection": "close"}) from None
    return body


def _shaped(body: bytearray, shape: type[S]) -> S:
    try:
        return shape.model_validate(parse(body))
    except ValidationError as error:
        raise of_shape(error) from None


_TOO_DEEP = f"it is nested too deeply: {MAX_DEPTH} levels are allowed"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has {name!r:.60} twice")
            seen.add(name)
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError(f"{text:.40} is larger than every number")
    return value


def _check_depth(body: bytes | bytearray, value: Any) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
