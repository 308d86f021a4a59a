"""Choices: the answers to one prompt, each heard apart and taken apart into text, reasoning and calls of tools."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass
from emel.server.access_log import tell
from emel.server.hearing import Hearing
from emel.text.answers import CallArguments, CallBegun, ReasoningPiece, TextPiece, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from starlette.types import Scope

    from emel.engine.model import Model
    from emel.engine.results import Chunk, Completion
    from emel.server.metrics import Observer
    from emel.text.answers import AnswerParser, Piece
    from emel.text.constraint import Constraint


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

    def add(self, pieces: Sequence[Piece]) -> None:
        """Puts pieces where they belong."""
        for piece in pieces:
            if isinstance(piece, TextPiece):
                self.text.append(piece.text)
            elif isinstance(piece, ReasoningPiece):
                self.reasoning.append(piece.text)
            elif isinstance(piece, CallBegun):
                self.begun.append((piece.name, []))
            elif isinstance(piece, CallArguments):
                self.begun[-1][1].append(piece.text)


@dataclass(frozen=True, slots=True)
class Step:
    """What a chunk brought to a choice; with the last one the answer is whole."""

    answer: Answer
    pieces: list[Piece]
    chunk: Chunk
    progress: dict[str, int] | None = None
    """How far the prompt is, instead of everything else."""


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

    def submit(self, model: Model, listeners: Sequence[Hearing]) -> None:
        """Submits the answers; the prompt is computed once."""
        options = {**self.options, "new_constraint": self.new_constraint}
        requests = model.submit_all(self.prompt_ids, listeners, **options)
        for listener, request in zip(listeners, requests, strict=True):
            listener.request = request


class Choices:
    """Answers that belong to one HTTP request. Left early, all that run are cancelled."""

    def __init__(
        self, model: Model, jobs: Sequence[Job], timeout: float | None, observers: Sequence[Observer], scope: Scope
    ) -> None:
        """Submits all of them; RequestError for what is wrong with one, then none runs. timeout: seconds for each.

        Each observer sees the chunks of one answer; the scope's line of the access log is told how they ended.
        """
        self._observers = observers
        self._scope = scope
        self._parsers = [job.new_parser() for job in jobs for _ in range(job.n)]
        self.answers = [Answer(index) for index in range(len(self._parsers))]
        self._hearings = [Hearing(timeout) for _ in self.answers]
        try:
            n_before = 0
            for job in jobs:
                job.submit(model, self._hearings[n_before : n_before + job.n])
                n_before += job.n
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends all that run, within a step."""
        for hearing in self._hearings:
            hearing.cancel()

    def progress(self) -> tuple[int, int, int] | None:
        """Tokens of the first prompt: all, those an earlier request had computed, and those computed, them included."""
        request = self._hearings[0].request
        return None if request is None else request.progress

    async def steps(self) -> AsyncGenerator[Step, None]:
        """What comes, of all choices as it comes; raises what one of them failed with."""
        coming: asyncio.Queue[Step | Exception | None] = asyncio.Queue()
        pumps = [asyncio.ensure_future(self._pump(index, coming)) for index in range(1, len(self.answers))]
        try:
            if not pumps:
                async for step in self._steps_of(0):
                    yield step
                return
            pumps.append(asyncio.ensure_future(self._pump(0, coming)))
            n_running = len(pumps)
            while n_running:
                heard = await coming.get()
                if heard is None:
                    n_running -= 1
                elif isinstance(heard, Exception):
                    raise heard
                else:
                    yield heard
        finally:
            self.cancel()
            tell(self._scope, [each.completion for each in self.answers if each.completion is not None])
            for task in pumps:
                task.cancel()

    async def _pump(self, index: int, coming: asyncio.Queue[Step | Exception | None]) -> None:
        try:
            async for step in self._steps_of(index):
                coming.put_nowait(step)
            coming.put_nowait(None)
        except Exception as error:
            coming.put_nowait(error)

    async def _steps_of(self, index: int) -> AsyncGenerator[Step, None]:
        answer, parser, observer = self.answers[index], self._parsers[index], self._observers[index]
        see = observer.see
        try:
            async for chunk in self._hearings[index].chunks():
                see(chunk)
                pieces = parser.feed(chunk.text)
                if chunk.completion is not None:
                    pieces += parser.flush()
                    answer.completion = chunk.completion
                answer.add(pieces)
                answer.logprobs += chunk.logprobs or ()
                yield Step(answer, pieces, chunk)
        except Exception as error:
            observer.fail(error)
            raise

    async def all(self) -> list[Answer]:
        """The whole answers."""
        async for _ in self.steps():
            pass
        return self.answers
