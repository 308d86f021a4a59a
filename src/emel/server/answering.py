"""The one way from answers that were asked for to a response: whole, or as a stream of events.

What an endpoint calls things is its Wording; when answers are submitted, what happens when the client goes away or an
answer breaks off, is the same for all.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import JSONResponse

from emel.server.connection import EventStream
from emel.server.errors import of_exception
from emel.server.generating import begin, whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices, Job
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel


class Wording(Protocol):
    """How an endpoint tells answers."""

    @property
    def done(self) -> bytes:
        """What ends a stream that did not break off."""

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The body of a response that is told at once."""

    def events(self, choices: Choices) -> AsyncGenerator[bytes, None]:
        """The events of a stream; raises what an answer failed with."""

    def failed(self, error: ApiError) -> bytes:
        """The event of a stream that breaks off."""


async def respond(
    request: Request,
    served: ServedModel,
    jobs: Sequence[Job],
    wording: Wording,
    *,
    is_streamed: bool,
    ping_seconds: float | None = None,
) -> Response | EventStream:
    """Has the answers of a request made and told. ApiError before anything is sent, ClientGone.

    ping_seconds: silence of a stream after which a comment comes (None: as the server has it).
    """
    choices = begin(request, served, jobs)
    if is_streamed:
        ping_seconds = ping_seconds or request.app.state.settings.ping_seconds
        return EventStream(_events(wording, choices), ping_seconds, choices.cancel)
    return JSONResponse(wording.whole(await whole(request, choices)))


async def _events(wording: Wording, choices: Choices) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(wording.events(choices)) as events:
            async for event in events:
                yield event
    except Exception as error:
        yield wording.failed(of_exception(error))
    else:
        if wording.done:
            yield wording.done
    finally:
        choices.cancel()
