"""The one way from answers that were asked for to a response: whole, or as a stream of events.

What an endpoint calls things is its Wording, in a stream its Telling; when answers are submitted, what happens when
the client goes away or an answer breaks off, is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import JSONResponse

from emel.server.connection import EventStream
from emel.server.errors import of_exception
from emel.server.generating import begin, whole
from emel.server.prompt_progress import progress_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices, Job, Step
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel


class Telling(Protocol):
    """The events of one stream, in an endpoint's words. Pure: what came in, bytes out."""

    def opening(self) -> bytes:
        """What comes before anything has come of the answers."""

    def events(self, step: Step) -> Iterable[bytes]:
        """What a step brought."""

    def ending(self) -> bytes:
        """What ends a stream that did not break off."""

    def failed(self, error: ApiError) -> bytes:
        """What ends a stream that breaks off."""


class Wording(Protocol):
    """How an endpoint tells answers."""

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        """The body of a response that is told at once."""

    def telling(self, answers: list[Answer]) -> Telling:
        """What tells them as they come."""


async def respond(
    request: Request,
    served: ServedModel,
    jobs: Sequence[Job],
    wording: Wording,
    *,
    is_streamed: bool,
    has_progress: bool = False,
    ping_seconds: float | None = None,
) -> Response | EventStream:
    """Has the answers of a request made and told. ApiError before anything is sent, ClientGone.

    has_progress: a stream also tells how far the prompt is, until its answer begins. ping_seconds: silence of a stream
    after which a comment comes (None: as the server has it).
    """
    choices = begin(request, served, jobs)
    if is_streamed:
        ping_seconds = ping_seconds or request.app.state.settings.ping_seconds
        events = _events(wording.telling(choices.answers), choices, has_progress=has_progress)
        return EventStream(events, ping_seconds, choices.close)
    return JSONResponse(wording.whole(await whole(request, choices)))


async def _events(telling: Telling, choices: Choices, *, has_progress: bool) -> AsyncGenerator[bytes, None]:
    """All that came at once is told at once: one wake-up of the loop and one system call, not one for each event."""
    try:
        yield telling.opening()
        if has_progress:
            async for step in progress_of(choices):
                yield b"".join(telling.events(step))
        while steps := await choices.next_steps():
            yield b"".join([event for step in steps for event in telling.events(step)])
        yield telling.ending()
    except Exception as error:
        yield telling.failed(of_exception(error))
