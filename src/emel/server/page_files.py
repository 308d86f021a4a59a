"""GET / and the files of the page, from the package; nothing of it comes from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response

from emel.server.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
NAMES = ("index.html", "style.css", "api.js", "chat.js", "diagram.js", "wave.js")


async def get_page(_request: Request) -> Response:
    """The page."""
    return _response("index.html")


async def get_page_file(request: Request) -> Response:
    """One of its files."""
    name = request.path_params["name"]
    if name not in NAMES:
        raise ApiError(404, f"the page has no file {name!r:.60}")
    return _response(name)


def _response(name: str) -> Response:
    return Response(_content(name), media_type=_TYPES[name.rpartition(".")[2]], headers=_HEADERS)


@cache
def _content(name: str) -> bytes:
    return files("emel.server").joinpath("page", name).read_bytes()
