"""Streams and completions: how the callers of the API hear of a request."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from emel.engine.request import Listener, Request
    from emel.engine.results import Chunk, Completion


class ChunkBuffer:
    """A listener that keeps what it hears until somebody reads it."""

    def __init__(self) -> None:
        self.heard: SimpleQueue[Chunk | Exception | None] = SimpleQueue()
        self.is_over = threading.Event()
        self.completion: Completion | None = None

    def on_chunk(self, chunk: Chunk) -> None:
        """Keeps it."""
        self.heard.put(chunk)

    def on_end(self, completion: Completion) -> None:
        """Ends the reading."""
        self.completion = completion
        self.is_over.set()
        self.heard.put(None)

    def on_failure(self, error: Exception) -> None:
        """Ends the reading with an error."""
        self.is_over.set()
        self.heard.put(error)


class Stream:
    """The chunks of one answer: an iterator, and a context manager that closes it.

    The answer is computed from the beginning on, whether it is read or not; what was not read yet is kept. Any thread
    may read or close it. A failed request raises RequestError.
    """

    def __init__(self, submit: Callable[[Listener], Request]) -> None:
        self._is_done = True
        self._buffer = ChunkBuffer()
        self._request = submit(self._buffer)
        self._is_done = False
        self._completion: Completion | None = None

    @property
    def completion(self) -> Completion | None:
        """The whole answer once it was read to its end or closed (then "cancelled"); None before and if it failed.

        Of a stream that was just closed it is waited for: as long as the step that runs.
        """
        if self._completion is None and self._is_done:
            if self._request.session.may_wait:
                self._buffer.is_over.wait()
            self._completion = self._buffer.completion
        return self._completion

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        self._request.session.check_process()  # nobody would ever put anything into the buffer of a fork
        if self._is_done:
            raise StopIteration
        if self._buffer.heard.empty():  # which the compute thread alone fills: it would wait for itself
            self._request.session.check_may_wait()
        try:
            heard = self._buffer.heard.get()
        except BaseException:
            self.close()
            raise
        if heard is not None and not isinstance(heard, Exception):
            self._completion = heard.completion
            return heard
        self._is_done = True
        self._buffer.heard.put(None)  # for others who read it too
        if heard is None:
            raise StopIteration
        raise heard

    def close(self) -> None:
        """Cancels what is left and returns at once; nothing more is read. Harmless when repeated."""
        if not self._is_done:
            self._is_done = True
            self._request.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class EndListener:
    """A listener to the end alone: no chunk is made for it, as the completion has them all."""

    def on_chunk(self, chunk: Chunk) -> None:
        """Never called."""


class Ending(EndListener):
    """A listener that waits for the end."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._completion: Completion | None = None
        self._error: Exception | None = None

    def on_end(self, completion: Completion) -> None:
        """Ends the wait."""
        self._completion = completion
        self._is_over.set()

    def on_failure(self, error: Exception) -> None:
        """Ends the wait with an error."""
        self._error = error
        self._is_over.set()

    def result(self) -> Completion:
        """What came of it; waits. Raises what it failed with."""
        self._is_over.wait()
        if self._error is not None:
            raise self._error
        assert self._completion is not None
        return self._completion
