"""Choices: the answers of one HTTP request, heard and taken apart into text, reasoning and calls of tools."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from emel.engine.results import Chunk
from emel.lazy_dataclasses import dataclass
from emel.server.access_log import tell
from emel.server.errors import of_failure, timed_out
from emel.server.hearing import Hearing
from emel.text.answers import CallArguments, CallBegun, ReasoningPiece, TextPiece, ToolCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from starlette.types import Scope

    from emel.engine.model import Model
    from emel.engine.results import Completion
    from emel.server.errors import ApiError
    from emel.server.hearing import Listener
    from emel.server.metrics import Observer
    from emel.text.answers import AnswerParser, Piece
    from emel.text.constraint import Constraint

_log = logging.getLogger("emel.server")


@dataclass(slots=True)
class Answer:
    """A choice as far as it is there."""

    index: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    begun: list[tuple[str, list[str]]] = field(default_factory=list)
    """Calls: the name, and the arguments in parts."""
    logprobs: list[Any] = field(default_factory=list)
    completion: Completion | None = None
    n_reasoning_tokens: int = 0
    _n_untold: int = 0  # tokens that brought no piece yet

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of tools."""
        return [ToolCall(name, "".join(parts)) for name, parts in self.begun]

    @property
    def finish_reason(self) -> str:
        """OpenAI's word for how it ended: "tool_calls" only when all of them can be carried out."""
        assert self.completion is not None
        reason = self.completion.finish_reason
        has_calls = self.begun and all(call.is_whole for call in self.calls)
        return "tool_calls" if has_calls and reason == "stop" else reason

    def add(self, pieces: Sequence[Piece], n_tokens: int) -> None:
        """Puts pieces where they belong; the tokens go to the first, with those before that brought none."""
        self._n_untold += n_tokens
        for piece in pieces:
            if isinstance(piece, TextPiece):
                self.text.append(piece.text)
                self._n_untold = 0
            elif isinstance(piece, ReasoningPiece):
                self.reasoning.append(piece.text)
                self.n_reasoning_tokens += self._n_untold
                self._n_untold = 0
            elif isinstance(piece, CallBegun):
                self.begun.append((piece.name, []))
                self._n_untold = 0
            elif isinstance(piece, CallArguments):
                self.begun[-1][1].append(piece.text)


_AT_ONCE = 256
"""Chunks that are heard before others of the event loop have their turn."""
Tell: TypeAlias = "Callable[[Answer, list[Piece], Chunk], bool]"
"""Hears what a chunk brought to a choice; with the last one the answer is whole. Whether there is room for more."""


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt and n answers that are wanted to it.

    options: the keywords of Model.submit. Each answer draws by a seed of its own, the first by that of the request.
    """

    prompt_ids: Sequence[int]
    options: dict[str, Any]
    new_parser: Callable[[], AnswerParser]
    new_constraint: Callable[[], Constraint] | None = None
    n: int = 1

    def submit(self, model: Model, listeners: Sequence[Listener]) -> None:
        """Submits the answers; the prompt is computed once."""
        options = {**self.options, "new_constraint": self.new_constraint}
        requests = model.submit_all(self.prompt_ids, listeners, **options)
        for listener, request in zip(listeners, requests, strict=True):
            listener.request = request


class Choices:
    """Answers that belong to one HTTP request. To be closed: left early, all that run are cancelled then."""

    def __init__(
        self,
        model: Model,
        jobs: Sequence[Job],
        timeout: float | None,
        observers: Sequence[Observer],
        scope: Scope,
        *,
        taken: set[Listener] | None = None,
    ) -> None:
        """Submits all of them; RequestError for what is wrong with one, then none runs. timeout: seconds for each.

        Each observer sees the chunks of one answer; the scope's line of the access log is told how they ended.
        taken: where each stands until it is over (Hearing).
        """
        self._observers = observers
        self._scope = scope
        self._parsers = [job.new_parser() for job in jobs for _ in range(job.n)]
        self.answers = [Answer(index) for index in range(len(self._parsers))]
        self._timeout = timeout
        self._hearing = Hearing(len(self.answers), timeout, taken)
        self._running = set(range(len(self.answers)))
        try:
            n_before = 0
            for job in jobs:
                job.submit(model, self._hearing.listeners[n_before : n_before + job.n])
                n_before += job.n
        except BaseException:
            self.cancel()
            self._hearing.taken.difference_update(each for each in self._hearing.listeners if each.request is None)
            raise

    def cancel(self) -> None:
        """Ends all that run, within a step."""
        for listener in self._hearing.listeners:
            listener.cancel()

    def break_off(self, error: ApiError) -> None:
        """Ends all that run, and has the access log told why."""
        self.cancel()
        error.tell(self._scope)

    def close(self) -> None:
        """Cancels what runs, and has the access log told of what is whole; harmless when that was done."""
        self.cancel()
        tell(self._scope, [each.completion for each in self.answers if each.completion is not None])

    def progress(self) -> tuple[int, int, int] | None:
        """Tokens of the first prompt: all, those an earlier request had computed, and those computed, them included."""
        request = self._hearing.listeners[0].request
        return None if request is None else request.progress

    async def has_begun(self, seconds: float) -> bool:
        """Whether something came, or comes within so many seconds; ApiError 504 when the answers take too long."""
        with self._observing_timeout():
            return await self._hearing.wait(seconds)

    async def each(self, tell: Tell) -> bool:
        """Calls `tell` with what comes of all choices, as it comes, until it has no room or all are whole.

        Whether some are not whole. Raises what one of them failed with, once what came before it was told.
        """
        with self._observing_timeout():
            await self._hearing.each(partial(self._hear, tell))
        return bool(self._running)

    async def within_time(self, waiting: Awaitable[None]) -> None:
        """Waits for something else, no longer than the answers may take; ApiError 504."""
        deadline = self._hearing.deadline
        with self._observing_timeout():
            async with asyncio.timeout_at(None if deadline == inf else deadline):
                await waiting

    async def all(self) -> list[Answer]:
        """The whole answers."""
        while await self.each(_nobody):
            pass
        return self.answers

    @contextmanager
    def _observing_timeout(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self._observers[min(self._running)].fail(error)
            raise timed_out(self._timeout) from error

    def _hear(self, tell: Tell) -> bool:
        """Whether there is more to hear, and room for it."""
        heard = self._hearing.heard
        for _ in range(_AT_ONCE):
            if not heard:
                return bool(self._running)
            index, what = heard.popleft()
            if isinstance(what, Chunk):
                answer, parser = self.answers[index], self._parsers[index]
                self._observers[index].see(what)
                pieces = parser.feed(what.text)
                if what.completion is not None:
                    pieces += parser.flush()
                    answer.completion = what.completion
                answer.add(pieces, len(what.token_ids))
                if what.logprobs:
                    answer.logprobs += what.logprobs
                if not tell(answer, pieces, what):
                    return False
            elif isinstance(what, Exception):
                raise self._failure(index, what)
            else:
                self._running.discard(index)
        self._hearing.ring()
        return bool(self._running)

    def _failure(self, index: int, cause: Exception) -> Exception:
        failure = of_failure(cause)
        failure.__cause__ = cause
        if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("an answer failed", exc_info=cause)
        self._observers[index].fail(failure)
        return failure


def _nobody(_answer: Answer, _pieces: Sequence[Piece], _chunk: Chunk) -> bool:
    """Hears nothing."""
    return True
