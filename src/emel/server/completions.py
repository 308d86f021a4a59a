"""POST /v1/completions (https://platform.openai.com/docs/api-reference/completions)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import JSONResponse

from emel.server import sse
from emel.server.body import read_shape
from emel.server.choices import Job
from emel.server.connection import EventStream
from emel.server.constraints import constraint_of
from emel.server.errors import invalid, of_exception
from emel.server.generating import begin, check_count, in_thread, new_head, settings_used, timings, usage, whole
from emel.server.logprobs import completion_logprobs
from emel.server.served import ready_model
from emel.server.shapes import CompletionRequest
from emel.text.answers import PlainParser, TextPiece

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices
    from emel.server.generating import Head
    from emel.server.served_model import ServedModel
    from emel.text.constraint import Constraint


class Prompts(NamedTuple):
    """The prompts of a request, and what of them is echoed before each answer."""

    ids: list[list[int]]
    echoes: list[str]


async def create_completion(request: Request) -> Response | EventStream:
    """The endpoint."""
    state = request.app.state
    shape = await read_shape(request, CompletionRequest)
    _check(shape)
    served = await ready_model(request, shape.model)
    n = shape.n or 1
    check_count(request, served, n * (len(shape.prompt) if shape.has_many else 1))
    prompts, new_constraint = await in_thread(request, _prepare, served, shape)
    echoes = [served.model.detokenize(ids) if shape.echo else "" for ids in prompts for _ in range(n)]
    options = shape.sampling()
    choices = begin(request, served, [Job(ids, options, PlainParser, new_constraint, n) for ids in prompts])
    if shape.stream:
        head = new_head("cmpl-", "text_completion", served)
        texts = Prompts(prompts, echoes)
        events = _events(served, shape, choices, head, texts)
        return EventStream(events, state.settings.ping_seconds, choices.cancel)
    answers = await whole(request, choices)
    head = new_head("cmpl-", "text_completion", served)
    first = answers[0].completion
    assert first is not None
    return JSONResponse(
        {
            **head.fields(),
            "choices": [_choice(served, shape, each, echoes[each.index]) for each in answers],
            "usage": usage(prompts, answers),
            "timings": timings(first),
            "generation_settings": settings_used(first),
        }
    )


def _check(shape: CompletionRequest) -> None:
    if shape.suffix:
        raise invalid("suffix is not supported: give the whole prompt", "suffix")
    if shape.best_of not in (None, shape.n or 1):
        raise invalid(f"best_of is {shape.best_of}: only n, {shape.n or 1}, is supported", "best_of")


def _prepare(served: ServedModel, shape: CompletionRequest) -> tuple[list[list[int]], Callable[[], Constraint] | None]:
    """Token ids of each prompt, and what makes the constraint of each answer."""
    model = served.model
    given: Any = shape.prompt
    many = given if shape.has_many else [given]
    prompts = [model.tokenize(each) if isinstance(each, str) else each for each in many]
    if not all(prompts):
        raise invalid("the prompt has no tokens: give at least one character", "prompt")
    return prompts, constraint_of(served, shape)


def _choice(served: ServedModel, shape: CompletionRequest, answer: Answer, echo: str) -> dict[str, Any]:
    logprobs = None
    if shape.logprobs is not None:
        logprobs = completion_logprobs(served.model.tokenizer, answer.logprobs, len(echo))
    text = echo + "".join(answer.text)
    return {"index": answer.index, "text": text, "logprobs": logprobs, "finish_reason": answer.finish_reason}


async def _events(
    served: ServedModel,
    shape: CompletionRequest,
    choices: Choices,
    head: Head,
    prompts: Prompts,
) -> AsyncGenerator[bytes, None]:
    event = sse.Events(head.fields()).event
    offsets = list(map(len, prompts.echoes))
    try:
        for answer, echo in zip(choices.answers, prompts.echoes, strict=True):
            if echo:
                yield event(choices=[_part(answer.index, echo, None, None)])
        async for step in choices.steps():
            index = step.answer.index
            text = "".join(piece.text for piece in step.pieces if isinstance(piece, TextPiece))
            logprobs = None
            if shape.logprobs is not None and step.chunk.logprobs:
                logprobs = completion_logprobs(served.model.tokenizer, step.chunk.logprobs, offsets[index])
                offsets[index] += sum(map(len, logprobs["tokens"]))
            if text or (logprobs and logprobs["tokens"]):
                yield event(choices=[_part(index, text, logprobs, None)])
            if (completion := step.chunk.completion) is not None:
                end = _part(index, "", None, step.answer.finish_reason)
                told = {"timings": timings(completion), "generation_settings": settings_used(completion)}
                yield event(choices=[end], **told)
        if shape.wants_usage:
            yield event(choices=[], usage=usage(prompts.ids, choices.answers))
    except Exception as error:
        yield sse.event(of_exception(error).body)
    else:
        yield sse.DONE
    finally:
        choices.cancel()


def _part(index: int, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
