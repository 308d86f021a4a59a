"""POST /v1/chat/completions (https://platform.openai.com/docs/api-reference/chat)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.lazy_dataclasses import dataclass
from emel.server import sse
from emel.server.answering import respond
from emel.server.body import read_shape
from emel.server.choices import Job
from emel.server.constraints import constraint_of
from emel.server.errors import invalid
from emel.server.generating import check_options, in_thread, new_head, settings_used, timings, transcript_of, usage
from emel.server.holding import ready_model
from emel.server.logprobs import chat_logprobs
from emel.server.shapes import ChatRequest
from emel.server.tools import calls_on_wire, chosen_tools, tool_constraint
from emel.text.answers import CallBegun, PlainParser, ReasoningPiece, TextPiece, ToolCall, new_parser
from emel.text.chat_messages import ChatTemplateError
from emel.text.chat_tokens import encode_prompt, render_chat

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
    from emel.text.answers import AnswerParser, Piece
    from emel.text.chat_tokens import ChatPrompt
    from emel.text.constraint import Constraint
    from emel.text.sampler import TokenLogprobs

_TEXTS = (TextPiece, ReasoningPiece)


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
    shape = await read_shape(request, ChatRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, shape)
    wording = _Wording(served, served.model, shape, chat)
    return await respond(
        request,
        served,
        [chat.job(shape.n or 1)],
        wording,
        is_streamed=bool(shape.stream),
        has_progress=bool(shape.return_progress),
        ping_seconds=shape.ping_seconds,
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
    check_options(served, options)
    if shape.top_logprobs and not shape.logprobs:
        raise invalid("top_logprobs needs logprobs: set it to true", "top_logprobs")
    tools = chosen_tools(shape)
    dialect = served.dialect
    forced = tool_constraint(shape, tools)
    splits = shape.reasoning_format != "none"
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


@dataclass(frozen=True, slots=True)
class _Wording:
    """OpenAI's words for the answers to a chat."""

    served: ServedModel
    model: Model  # of its own: others may unload it while a client that reads late is told
    shape: ChatRequest
    chat: Chat

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        return {
            **new_head("chatcmpl-", "chat.completion", self.served).fields(),
            "choices": [self._choice(answer, has_transcript=len(answers) > 1) for answer in answers],
            "usage": usage([self.chat.prompt_ids], answers),
            **self.extras(answers[0], has_transcript=len(answers) == 1),
        }

    def telling(self, answers: list[Answer]) -> _Telling:
        return _Telling(self, answers)

    def _choice(self, answer: Answer, *, has_transcript: bool) -> dict[str, Any]:
        text = "".join(answer.text)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not answer.begun else None}
        if answer.reasoning:
            message["reasoning_content"] = "".join(answer.reasoning)
        if answer.begun:
            message["tool_calls"] = calls_on_wire(answer.calls)
        logprobs = chat_logprobs(self.model.tokenizer, answer.logprobs) if self.shape.logprobs else None
        return {
            "index": answer.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason,
            **(self._transcript(answer) if has_transcript else {}),
        }

    def extras(self, answer: Answer, *, has_transcript: bool = True) -> dict[str, Any]:
        """What took how long, what was used, and the transcript if it was asked for and its place is here."""
        completion = answer.completion
        if completion is None:
            return {}
        told = {"timings": timings(completion), "generation_settings": settings_used(completion)}
        return told | (self._transcript(answer) if has_transcript else {})

    def _transcript(self, answer: Answer) -> dict[str, Any]:
        if not self.shape.transcript or answer.completion is None:
            return {}
        is_constrained = self.chat.new_constraint is not None
        ids, completion = self.chat.prompt_ids, answer.completion
        return {"transcript": transcript_of(self.model, ids, completion, is_constrained=is_constrained)}


class _Telling:
    """The same as they come, by deltas."""

    def __init__(self, wording: _Wording, answers: list[Answer]) -> None:
        self._wording, self._answers = wording, answers
        head = new_head("chatcmpl-", "chat.completion.chunk", wording.served)
        self._event = sse.Events(head.fields()).event
        self._texts: dict[tuple[int, type[TextPiece | ReasoningPiece]], sse.TextEvents] = {}

    def opening(self) -> bytes:
        first = {"role": "assistant", "content": ""}
        return b"".join(self._event(choices=[_delta(each.index, first)]) for each in self._answers)

    def progress(self, progress: dict[str, int]) -> bytes:
        return self._event(choices=[_delta(0, {})], prompt_progress=progress)

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        index = answer.index
        logprobs = self._logprobs(chunk.logprobs) if chunk.logprobs else None
        events = b""
        for piece in pieces:
            if logprobs is None and isinstance(piece, _TEXTS):
                kind = type(piece)
                texts = self._texts.get((index, kind)) or self._new_texts(index, kind)
                events += texts.event(piece.text)
            else:
                events += self._event(choices=[_delta(index, _delta_of(piece), logprobs)])
                logprobs = None  # they go with the first
        if logprobs is not None:
            events += self._event(choices=[_delta(index, {"content": ""}, logprobs)])
        if chunk.completion is not None:
            end = _delta(index, {}, None, answer.finish_reason)
            events += self._event(choices=[end], **self._wording.extras(answer))
        return events

    def ending(self) -> bytes:
        if not self._wording.shape.wants_usage:
            return sse.DONE
        return self._event(choices=[], usage=usage([self._wording.chat.prompt_ids], self._answers)) + sse.DONE

    def failed(self, error: ApiError) -> bytes:
        return sse.event(error.body)

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not self._wording.shape.logprobs:
            return None
        told = chat_logprobs(self._wording.model.tokenizer, logprobs)
        return told if told["content"] else None

    def _new_texts(self, index: int, kind: type[TextPiece | ReasoningPiece]) -> sse.TextEvents:
        def event_of(text: str) -> bytes:
            return self._event(choices=[_delta(index, _delta_of(kind(text)))])

        made = self._texts[index, kind] = sse.TextEvents(event_of)
        return made


def _delta_of(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, TextPiece):
        return {"content": piece.text}
    if isinstance(piece, ReasoningPiece):
        return {"reasoning_content": piece.text}
    if isinstance(piece, CallBegun):
        [call] = calls_on_wire([ToolCall(piece.name, "")])
        return {"tool_calls": [{"index": piece.index, **call}]}
    return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}


def _delta(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
