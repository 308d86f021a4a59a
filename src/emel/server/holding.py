"""Which models a request has: from when it asked for one to the end of its response, they are not idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.server.access_log import tell_model

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from emel.server.served import ServedModels
    from emel.server.served_model import ServedModel

_HELD = "emel.held"


class Holding:
    """ASGI middleware: what a request holds is released when its response is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on."""
        held: list[ServedModel] = []
        scope[_HELD] = held
        try:
            await self._app(scope, receive, send)
        finally:
            for each in held:
                each.release()


async def ready_model(request: Request, name: str | None) -> ServedModel:
    """The model of a name, which the request has until its response is over; errors as those of ServedModels.ready."""
    models: ServedModels = request.app.state.models
    tell_model(request.scope, models.find(name).name)
    served = await models.ready(name)
    request.scope[_HELD].append(served)
    return served
