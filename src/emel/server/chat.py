"""POST /v1/chat/completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.engine.transcript import record
from emel.server import sse
from emel.server.body import read_shape
from emel.server.choices import Job
from emel.server.connection import EventStream
from emel.server.constraints import constraint_of
from emel.server.errors import invalid, of_exception
from emel.server.generating import begin, in_thread, new_head, settings_used, timings, usage, whole
from emel.server.logprobs import chat_logprobs
from emel.server.served import ready_model
from emel.server.shapes import ChatRequest
from emel.server.tools import calls_on_wire, chosen_tools, tool_constraint
from emel.text.answers import CallArguments, CallBegun, PlainParser, ReasoningPiece, TextPiece, ToolCall, new_parser
from emel.text.chat_messages import ChatTemplateError
from emel.text.chat_tokens import encode_prompt, render_chat

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices, Step
    from emel.server.generating import Head
    from emel.server.served_model import ServedModel
    from emel.text.answers import AnswerParser
    from emel.text.chat_tokens import ChatPrompt
    from emel.text.constraint import Constraint


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request ready to be answered."""

    prompt: ChatPrompt
    prompt_ids: list[int]
    options: dict[str, Any]
    new_parser: Callable[[], AnswerParser]
    new_constraint: Callable[[], Constraint] | None

    def job(self, n: int = 1) -> Job:
        """n answers to it."""
        return Job(self.prompt_ids, self.options, self.new_parser, self.new_constraint, n)


async def create_chat_completion(request: Request) -> Response | EventStream:
    """The endpoint."""
    state = request.app.state
    shape = await read_shape(request, ChatRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, shape)
    choices = begin(request, served, [chat.job(shape.n or 1)])
    if shape.stream:
        head = new_head("chatcmpl-", "chat.completion.chunk", served)
        events = _events(served, shape, chat, choices, head)
        return EventStream(events, state.settings.ping_seconds, choices.cancel)
    answers = await whole(request, choices)
    head = new_head("chatcmpl-", "chat.completion", served)
    return JSONResponse(
        {
            **head.fields(),
            "choices": [_choice(served, shape, answer) for answer in answers],
            "usage": usage([chat.prompt_ids], answers),
            **_extras(answers),
            **_transcript(served, shape, chat, answers),
        }
    )


async def apply_template(request: Request) -> Response:
    """POST /apply-template: the prompt of a chat, as text."""
    shape = await read_shape(request, ChatRequest)
    served = await ready_model(request, shape.model)
    chat = await asyncio.to_thread(render, served, shape)
    return JSONResponse({"prompt": chat.text})


def render(served: ServedModel, shape: ChatRequest) -> ChatPrompt:
    """The prompt as text; ApiError 400 with the template's own words."""
    is_prefilled = shape.messages[-1].get("role") == "assistant" and not shape.messages[-1].get("tool_calls")
    continues = is_prefilled if shape.continue_final_message is None else shape.continue_final_message
    try:
        return render_chat(
            served.template,
            shape.messages,
            tools=chosen_tools(shape),
            add_generation_prompt=shape.add_generation_prompt is not False,
            continue_final_message=continues,
            **shape.template_variables(),
        )
    except ChatTemplateError as error:
        raise invalid(str(error), "messages") from error


def prepare(served: ServedModel, shape: ChatRequest) -> Chat:
    """Everything that takes a while before the first token: the prompt's ids, a compiled constraint."""
    prompt = render(served, shape)
    options = shape.sampling()
    if shape.top_logprobs and not shape.logprobs:
        raise invalid("top_logprobs needs logprobs: set it to true", "top_logprobs")
    tools = chosen_tools(shape)
    dialect = served.dialect
    forced = tool_constraint(shape, tools)
    splits = shape.reasoning_format != "none"
    if shape.transcript:
        options["digests"] = True
    if dialect.marks and (tools or splits):
        options["shown_controls"] = dialect.marks
    opened = dialect.reasoning[0]
    is_reasoning = splits and bool(opened) and prompt.text.rstrip().endswith(opened)

    def parser() -> AnswerParser:
        if forced is not None:
            return forced.new_parser()
        if tools or splits:
            return new_parser(dialect, has_tools=bool(tools), is_reasoning=is_reasoning)
        return PlainParser()

    ids = encode_prompt(served.model.tokenizer, prompt)
    return Chat(prompt, ids, options, parser, constraint_of(served, shape, forced))


def _choice(served: ServedModel, shape: ChatRequest, answer: Answer) -> dict[str, Any]:
    text = "".join(answer.text)
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not answer.calls else None}
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.calls:
        message["tool_calls"] = calls_on_wire(answer.calls)
    logprobs = chat_logprobs(served.model.tokenizer, answer.logprobs) if shape.logprobs else None
    return {
        "index": answer.index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": answer.finish_reason,
    }


def _transcript(served: ServedModel, shape: ChatRequest, chat: Chat, answers: list[Answer]) -> dict[str, Any]:
    """The transcript of the first answer, for `emel verify`, if it was asked for."""
    completion = answers[0].completion
    if not shape.transcript or completion is None:
        return {}
    recorded = record(served.model, chat.prompt_ids, completion, is_constrained=chat.new_constraint is not None)
    return {"transcript": recorded.to_json()}


def _extras(answers: list[Answer]) -> dict[str, Any]:
    first = answers[0].completion
    return {} if first is None else {"timings": timings(first), "generation_settings": settings_used(first)}


async def _events(
    served: ServedModel, shape: ChatRequest, chat: Chat, choices: Choices, head: Head
) -> AsyncGenerator[bytes, None]:
    event = sse.Events(head.fields()).event
    try:
        for answer in choices.answers:
            yield event(choices=[_delta(answer.index, {"role": "assistant", "content": ""})])
        async for step in choices.steps():
            for delta, logprobs in _deltas(served, shape, step):
                yield event(choices=[_delta(step.answer.index, delta, logprobs)])
            if step.chunk.completion is not None:
                end = _delta(step.answer.index, {}, None, step.answer.finish_reason)
                extras = {**_extras([step.answer]), **_transcript(served, shape, chat, [step.answer])}
                yield event(choices=[end], **extras)
        if shape.wants_usage:
            yield event(choices=[], usage=usage([chat.prompt_ids], choices.answers))
    except Exception as error:
        yield sse.event(of_exception(error).body)
    else:
        yield sse.DONE
    finally:
        choices.cancel()


def _deltas(served: ServedModel, shape: ChatRequest, step: Step) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The deltas of a step; its log probabilities go with the first."""
    deltas: list[dict[str, Any]] = []
    for piece in step.pieces:
        if isinstance(piece, TextPiece):
            deltas.append({"content": piece.text})
        elif isinstance(piece, ReasoningPiece):
            deltas.append({"reasoning_content": piece.text})
        elif isinstance(piece, CallBegun):
            [call] = calls_on_wire([ToolCall(piece.name, "")])
            deltas.append({"tool_calls": [{"index": piece.index, **call}]})
        elif isinstance(piece, CallArguments):
            deltas.append({"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]})
    logprobs = None
    if shape.logprobs and step.chunk.logprobs:
        logprobs = chat_logprobs(served.model.tokenizer, step.chunk.logprobs)
        if not logprobs["content"]:
            logprobs = None
        elif not deltas:
            deltas.append({"content": ""})
    return [(delta, None if index else logprobs) for index, delta in enumerate(deltas)]


def _delta(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
