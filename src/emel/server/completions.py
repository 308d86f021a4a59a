"""POST /v1/completions (https://platform.openai.com/docs/api-reference/completions)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass
from emel.server import sse
from emel.server.answering import respond
from emel.server.body import read_shape
from emel.server.choices import Job
from emel.server.constraints import constraint_of
from emel.server.errors import checked_tokens, invalid
from emel.server.generating import (
    check_count,
    check_length,
    check_options,
    in_thread,
    new_head,
    settings_used,
    timings,
    transcript_of,
    usage,
)
from emel.server.holding import ready_model
from emel.server.logprobs import completion_logprobs
from emel.server.shapes import CompletionRequest
from emel.text.answers import PlainParser, TextPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.model import Model
    from emel.engine.results import Chunk
    from emel.server.choices import Answer
    from emel.server.connection import EventStream
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel
    from emel.text.answers import Piece
    from emel.text.constraint import Constraint
    from emel.text.sampler import TokenLogprobs


async def create_completion(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, CompletionRequest)
    _check(shape)
    served = await ready_model(request, shape.model)
    n = shape.n or 1
    check_count(request, served, n * (len(shape.prompt) if shape.has_many else 1))
    prompts, echoes, new_constraint = await in_thread(request, _prepare, served, shape)
    options = shape.sampling()
    jobs = [Job(ids, options, PlainParser, new_constraint, n) for ids in prompts]
    wording = _Wording(served, served.model, shape, prompts, echoes, new_constraint is not None)
    return await respond(
        request,
        served,
        jobs,
        wording,
        is_streamed=bool(shape.stream),
        has_progress=bool(shape.return_progress),
        ping_seconds=shape.ping_seconds,
    )


def _check(shape: CompletionRequest) -> None:
    if shape.suffix:
        raise invalid("suffix is not supported: give the whole prompt", "suffix")
    if shape.best_of not in (None, shape.n or 1):
        raise invalid(f"best_of is {shape.best_of}: only n, {shape.n or 1}, is supported", "best_of")


def _prepare(
    served: ServedModel, shape: CompletionRequest
) -> tuple[list[list[int]], list[str], Callable[[], Constraint] | None]:
    """Token ids of each prompt, what is told before each answer, and what makes the constraint of each."""
    check_options(served, shape.sampling())
    model = served.model
    given: Any = shape.prompt
    many = given if shape.has_many else [given]
    prompts = [
        model.tokenize(each) if isinstance(each, str) else checked_tokens(each, model.n_vocab, "prompt")
        for each in many
    ]
    if not all(prompts):
        raise invalid("the prompt has no tokens: give at least one character", "prompt")
    for ids in prompts:
        check_length(ids, model)
    echoes = [model.detokenize(ids) if shape.echo else "" for ids in prompts for _ in range(shape.n or 1)]
    return prompts, echoes, constraint_of(served, shape)


@dataclass(frozen=True, slots=True)
class _Wording:
    """OpenAI's words for the answers to prompts. `echoes`: of each answer, what is told before it."""

    served: ServedModel
    model: Model  # of its own: others may unload it while a client that reads late is told
    shape: CompletionRequest
    prompts: list[list[int]]
    echoes: list[str]
    is_constrained: bool

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        first = answers[0].completion
        assert first is not None
        return {
            **new_head("cmpl-", "text_completion", self.served).fields(),
            "choices": [self._choice(each, has_transcript=len(answers) > 1) for each in answers],
            "usage": usage(self.prompts, answers),
            "timings": timings(first),
            "generation_settings": settings_used(first),
            **(self.transcript(answers[0]) if len(answers) == 1 else {}),
        }

    def telling(self, answers: list[Answer]) -> _Telling:
        return _Telling(self, answers)

    def transcript(self, answer: Answer) -> dict[str, Any]:
        """The transcript for `emel verify`, if it was asked for."""
        if not self.shape.transcript or answer.completion is None:
            return {}
        ids, completion = self.prompts[answer.index // (self.shape.n or 1)], answer.completion
        return {"transcript": transcript_of(self.model, ids, completion, is_constrained=self.is_constrained)}

    def _choice(self, answer: Answer, *, has_transcript: bool) -> dict[str, Any]:
        echo, logprobs = self.echoes[answer.index], None
        if self.shape.logprobs is not None:
            logprobs = completion_logprobs(self.model.tokenizer, answer.logprobs, len(echo))
        choice = _part(answer.index, echo + "".join(answer.text), logprobs, answer.finish_reason)
        return choice | (self.transcript(answer) if has_transcript else {})


class _Telling:
    """The same as they come: the parts of a choice have what it has, and begin with the echo."""

    def __init__(self, wording: _Wording, answers: list[Answer]) -> None:
        self._wording, self._answers = wording, answers
        head = new_head("cmpl-", "text_completion", wording.served)
        self._event = sse.Events(head.fields()).event
        self._texts = [sse.TextEvents(partial(self._text, answer.index)).event for answer in answers]
        self._offsets = list(map(len, wording.echoes))

    def opening(self) -> bytes:
        return b"".join(self._text(index, echo) for index, echo in enumerate(self._wording.echoes) if echo)

    def progress(self, progress: dict[str, int]) -> bytes:
        return self._event(choices=[_part(0, "", None, None)], prompt_progress=progress)

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        index, text = answer.index, ""
        for piece in pieces:
            if isinstance(piece, TextPiece):
                text += piece.text
        logprobs = self._logprobs(index, chunk.logprobs) if chunk.logprobs else None
        if logprobs is not None:
            events = self._event(choices=[_part(index, text, logprobs, None)])
        else:
            events = self._texts[index](text) if text else b""
        if (completion := chunk.completion) is not None:
            told = {"timings": timings(completion), "generation_settings": settings_used(completion)}
            told |= self._wording.transcript(answer)
            events += self._event(choices=[_part(index, "", None, answer.finish_reason)], **told)
        return events

    def ending(self) -> bytes:
        if not self._wording.shape.wants_usage:
            return sse.DONE
        return self._event(choices=[], usage=usage(self._wording.prompts, self._answers)) + sse.DONE

    def failed(self, error: ApiError) -> bytes:
        return sse.event(error.body)

    def _logprobs(self, index: int, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if self._wording.shape.logprobs is None:
            return None
        told = completion_logprobs(self._wording.model.tokenizer, logprobs, self._offsets[index])
        self._offsets[index] += sum(map(len, told["tokens"]))
        return told if told["tokens"] else None

    def _text(self, index: int, text: str) -> bytes:
        return self._event(choices=[_part(index, text, None, None)])


def _part(index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
