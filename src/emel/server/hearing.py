"""Hearing: how an answer comes from the compute thread to the event loop, and back how nobody wants it any more."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from emel.engine.results import Chunk, Completion
from emel.server.errors import of_failure

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from emel.engine.request import Request


class Hearing:
    """A listener that keeps chunks for one coroutine.

    The compute thread only appends and, when the coroutine sleeps, wakes it: one wake-up serves all chunks there are.
    Nothing waits for a slow reader.
    """

    def __init__(self, timeout: float | None = None) -> None:
        """To be made on the event loop. `request` is to be set to the request it listens to, once that is known.

        timeout: seconds from now; the chunks end with TimeoutError when they are not there by then.
        """
        self.request: Request | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = None if timeout is None else self._loop.time() + timeout
        self._heard: deque[Chunk | Completion | Exception] = deque()
        self._news = asyncio.Event()
        self._is_woken = False

    def cancel(self) -> None:
        """Ends the request within a step; harmless when it is over."""
        if self.request is not None:
            self.request.cancel()

    # ---- the compute thread

    def on_chunk(self, chunk: Chunk) -> None:
        """Keeps it."""
        self._hear(chunk)

    def on_end(self, completion: Completion) -> None:
        """Ends the chunks."""
        self._hear(completion)

    def on_failure(self, error: Exception) -> None:
        """Ends the chunks with an error."""
        self._hear(error)

    def _hear(self, what: Chunk | Completion | Exception) -> None:
        self._heard.append(what)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # the loop was closed: nobody is there any more
                self.cancel()

    # ---- the event loop

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The chunks as they come; ApiError for what the request failed with. Left early, it cancels the request."""
        is_over = False
        try:
            while not is_over:
                async with asyncio.timeout_at(self._deadline):
                    await self._news.wait()
                self._news.clear()
                self._is_woken = False
                while self._heard:
                    what = self._heard.popleft()
                    if isinstance(what, Chunk):
                        yield what
                        continue
                    is_over = True
                    if isinstance(what, Exception):
                        raise of_failure(what) from what
        finally:
            if not is_over:
                self.cancel()
