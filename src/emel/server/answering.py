"""The one way from answers that were asked for to a response: whole, or as a stream of events.

What an endpoint calls things is its Wording, in a stream its Telling; when answers are submitted, what happens when
the client goes away or an answer breaks off, is the same for all.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import JSONResponse

from emel.server.connection import EventStream
from emel.server.errors import of_exception
from emel.server.generating import begin, whole
from emel.server.prompt_progress import progress_of
from emel.server.wire import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.results import Chunk
    from emel.server.choices import Answer, Choices, Job
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel
    from emel.server.wire import Wire
    from emel.text.answers import Piece

_MANY_LOGPROBS = 256
"""Tokens whose log probabilities are made JSON in another thread: streams of others are on the event loop."""


class Telling(Protocol):
    """The events of one stream, in an endpoint's words. Pure: what came in, bytes out."""

    def opening(self) -> bytes:
        """What comes before anything has come of the answers."""

    def progress(self, progress: dict[str, int]) -> bytes:
        """How far the prompt was read; nothing where there is no word for it."""

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        """What a chunk brought to an answer; nothing if there is nothing to tell of it."""

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
        telling = wording.telling(choices.answers)
        return EventStream(partial(_tell, telling, choices, has_progress), ping_seconds, choices.close)
    answers = await whole(request, choices)
    if sum(len(each.logprobs) for each in answers) > _MANY_LOGPROBS:
        return await asyncio.to_thread(_response, wording, answers)
    return _response(wording, answers)


def _response(wording: Wording, answers: list[Answer]) -> Response:
    return JSONResponse(wording.whole(answers))


async def _tell(telling: Telling, choices: Choices, has_progress: bool, wire: Wire) -> None:
    """Waits for the answers and, where it reads too little, for the client; what is between is done by `tell`."""

    def tell(answer: Answer, pieces: list[Piece], chunk: Chunk) -> bool:
        return wire.write(telling.events(answer, pieces, chunk))

    try:
        await write(wire, telling.opening())
        if has_progress:
            async for progress in progress_of(choices):
                await write(wire, telling.progress(progress))
        while await choices.each(tell):
            await choices.within_time(wire.drained())
        await write(wire, telling.ending())
    except Exception as error:
        told = of_exception(error)
        choices.break_off(told)  # a client that does not read keeps no lane while it is told
        await write(wire, telling.failed(told))
