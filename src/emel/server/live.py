"""What goes on inside, as it goes on: waves, machines and their transitions, for the page and for whoever listens.

GET /live       events with each model's wave, when it changed, at most five a second
GET /machines   every machine's table
GET /trace      events with the transitions of all machines since the last event; recording costs only while one listens
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.server import sse
from emel.server.connection import EventStream
from emel.server.errors import ApiError
from emel.server.wire import hurry, write
from emel.sm.trace import Transition, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.datastructures import State
    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.wire import Wire

PERIOD = 0.2
"""Seconds between two events."""
_MOST_TRANSITIONS = 2000
"""Of an event; of more the last ones are told, and how many were not."""
_NOTHING = "-"


async def get_machines(_request: Request) -> Response:
    """Tables of all machines."""
    return JSONResponse(await asyncio.to_thread(_machines))


async def watch_waves(request: Request) -> EventStream:
    """Waves as they change."""
    settings = request.app.state.settings
    return EventStream(partial(_tell_until_end, request, _tell_waves), settings.ping_seconds)


async def watch_transitions(request: Request) -> EventStream:
    """Transitions as they happen. ApiError 403 where everybody could listen: recording slows the machines."""
    settings = request.app.state.settings
    if settings.is_public and not settings.api_keys:
        raise ApiError(403, "transitions are told only on this machine, or to those who have an API key")
    return EventStream(partial(_tell_until_end, request, _tell_transitions), settings.ping_seconds)


async def _tell_until_end(
    request: Request, tell: Callable[[State, Wire], Coroutine[Any, Any, None]], wire: Wire
) -> None:
    """The end of the server does not wait for who watches it."""
    state: State = request.app.state

    async def hurry_at_end() -> None:
        while not state.is_ending:
            await asyncio.sleep(PERIOD)
        hurry(request.scope)

    ending = asyncio.ensure_future(hurry_at_end())
    try:
        await tell(state, wire)
    finally:
        ending.cancel()


async def _tell_waves(state: State, wire: Wire) -> None:
    last = None
    while not state.is_ending:
        views = {each.name: asdict(each.model.wave.snapshot()) for each in state.models if each.is_loaded}
        if views != last:
            await write(wire, sse.event(views))
            last = views
        await asyncio.sleep(PERIOD)


async def _tell_transitions(state: State, wire: Wire) -> None:
    heard: deque[Transition] = deque(maxlen=_MOST_TRANSITIONS)
    n_heard = 0

    def hear(transition: Transition) -> None:
        nonlocal n_heard
        n_heard += 1
        heard.append(transition)

    with trace(hear):
        n_told = n_missed = 0
        while not state.is_ending:
            await asyncio.sleep(PERIOD)
            n_now = n_heard  # first: what is heard from here on is told or missed the next time
            told = [heard.popleft() for _ in range(len(heard))]
            n_told += len(told)
            if told:
                n_lost = max(n_missed, n_now - n_told)
                transitions = [asdict(each) for each in told]
                await write(wire, sse.event({"transitions": transitions, "n_missed": n_lost - n_missed}))
                n_missed = n_lost


def _machines() -> list[dict[str, Any]]:
    from emel.sm.diagram import summary, table_rows
    from emel.sm.registry import machine_classes

    return [
        {
            "name": each.__name__,
            "module": each.__module__,
            "summary": summary(each),
            "initial": each.INITIAL.name,
            "terminal": [state.name for state in each.STATES if state in each.TERMINAL],
            "states": [state.name for state in each.STATES],
            "rows": [
                {
                    name: None if cell == _NOTHING else cell
                    for name, cell in zip(("source", "event", "guard", "effect", "destination"), row, strict=True)
                }
                for row in table_rows(each)
            ],
        }
        for each in machine_classes()
    ]
