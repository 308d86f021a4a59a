"""How far a prompt has been read, told in a stream until its answer begins (`return_progress`, as llama.cpp has it)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from emel.server.choices import Choices

PERIOD = 0.1
"""Seconds between two looks."""


async def progress_of(choices: Choices) -> AsyncGenerator[dict[str, int], None]:
    """Tokens of the prompt, until something else comes."""
    began, told, has_begun = time.perf_counter(), None, False
    while not has_begun:
        has_begun = await choices.has_begun(PERIOD)
        seen = choices.progress()
        if seen is not None and seen != told:
            told = seen
            n_prompt, n_cached, n_computed = seen
            milliseconds = round(1e3 * (time.perf_counter() - began))
            yield {"total": n_prompt, "cache": n_cached, "processed": n_computed, "time_ms": milliseconds}
