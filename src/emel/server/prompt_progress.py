"""How far a prompt has been read, told in a stream until its answer begins (`return_progress`, as llama.cpp has it)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from emel.engine.results import Chunk
from emel.server.choices import Step

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from emel.server.choices import Choices

PERIOD = 0.1
"""Seconds between two looks."""
_NOTHING = Chunk("", ())


def steps_of(choices: Choices, *, has_progress: bool | None) -> AsyncGenerator[Step, None]:
    """The steps of answers, before them some with `progress` and nothing else if that is asked for."""
    return _with_progress(choices) if has_progress else choices.steps()


async def _with_progress(choices: Choices) -> AsyncGenerator[Step, None]:
    steps = choices.steps()
    async for step in _progress(choices, steps):
        yield step
    async for step in steps:
        yield step


async def _progress(choices: Choices, steps: AsyncGenerator[Step, None]) -> AsyncGenerator[Step, None]:
    """Steps with progress until the first of the others comes, and that one."""
    began, told = time.perf_counter(), None

    async def first() -> Step | None:
        return await anext(steps, None)

    waiting = asyncio.ensure_future(first())
    try:
        while True:
            await asyncio.wait({waiting}, timeout=PERIOD)
            seen = choices.progress()
            if seen is not None and seen != told:
                told = seen
                n_prompt, n_cached, n_computed = seen
                milliseconds = round(1e3 * (time.perf_counter() - began))
                progress = {"total": n_prompt, "cache": n_cached, "processed": n_computed, "time_ms": milliseconds}
                yield Step(choices.answers[0], [], _NOTHING, progress)
            if waiting.done():
                break
        step = waiting.result()
        if step is not None:
            yield step
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
