"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic has them (https://docs.anthropic.com/en/api/messages).

A request is turned into that of a chat and answered like one; only the words on the wire are others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.responses import JSONResponse

from emel.server import sse
from emel.server.body import read_shape
from emel.server.chat import prepare
from emel.server.connection import EventStream
from emel.server.errors import invalid, of_exception
from emel.server.generating import begin, in_thread, new_id, whole
from emel.server.sampling import Shape
from emel.server.served import ready_model
from emel.server.shapes import ChatRequest
from emel.text.answers import CallArguments, CallBegun, ReasoningPiece, TextPiece, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices
    from emel.server.served_model import ServedModel
    from emel.text.answers import Piece

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class MessagesRequest(Shape):
    """POST /v1/messages."""

    model: str | None = None
    messages: list[dict[str, Any]] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    system: str | list[dict[str, Any]] | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


async def create_message(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, MessagesRequest)
    if shape.max_tokens is None:
        raise invalid("max_tokens: field required", "max_tokens")
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    choices = begin(request, served, [chat.job()])
    if shape.stream:
        events = _events(served, choices, len(chat.prompt_ids))
        return EventStream(events, request.app.state.settings.ping_seconds, choices.cancel)
    [answer] = await whole(request, choices)
    usage = _usage(answer, len(chat.prompt_ids))
    return JSONResponse({**_message(served, _content(answer)), **_ending(answer), "usage": usage})


async def count_tokens(request: Request) -> Response:
    """How many tokens a request's prompt has."""
    shape = await read_shape(request, MessagesRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    return JSONResponse({"input_tokens": len(chat.prompt_ids)})


def as_chat(shape: MessagesRequest) -> ChatRequest:
    """The same request as one of a chat; ApiError 400 for what a chat cannot say."""
    messages: list[dict[str, Any]] = []
    if shape.system:
        messages.append({"role": "system", "content": _joined(shape.system, "system")})
    for index, message in enumerate(shape.messages):
        messages += _chat_messages(message, f"messages[{index}]")
    given: dict[str, Any] = {
        "messages": messages,
        "max_tokens": shape.max_tokens,
        "stop": shape.stop_sequences,
        "temperature": shape.temperature,
        "top_p": shape.top_p,
        "top_k": shape.top_k,
        "tools": [_chat_tool(tool, index) for index, tool in enumerate(shape.tools or ())] or None,
    }
    if shape.tool_choice is not None:
        given["tool_choice"] = _chat_tool_choice(shape.tool_choice)
    if shape.thinking is not None:
        given["chat_template_kwargs"] = {"enable_thinking": shape.thinking.get("type") == "enabled"}
    chat: ChatRequest = ChatRequest.model_validate(given)
    return chat


def _chat_messages(message: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """A message, whose results of tools are messages of their own in a chat."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise invalid(f"{where}.role is {role!r:.40}: allowed are 'user' and 'assistant'", "messages")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise invalid(f"{where}.content must be a text or a list of blocks", "messages")
    texts, calls = [], []
    for index, block in enumerate(content):
        kind = block.get("type")
        if kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result":
            told = _joined(block.get("content") or "", f"{where}.content[{index}]")
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": told}
        elif kind not in ("thinking", "redacted_thinking"):
            raise invalid(
                f"{where}.content[{index}] is a block of type {kind!r:.40}, which is not supported", "messages"
            )
    if texts or calls:
        yield {"role": role, "content": "\n".join(texts), **({"tool_calls": calls} if calls else {})}


def _joined(content: str | list[dict[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        raise invalid(f"{where} must be a text or a list of text blocks", where.partition("[")[0])
    return "\n".join(str(block.get("text", "")) for block in content)


def _chat_tool(tool: dict[str, Any], index: int) -> dict[str, Any]:
    if "input_schema" not in tool:
        raise invalid(f"tools[{index}] must have a name and an input_schema", "tools")
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    if "description" in tool:
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _chat_tool_choice(choice: dict[str, Any]) -> str | dict[str, Any]:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in _TOOL_CHOICES:
        raise invalid(f"tool_choice.type is {kind!r:.40}: allowed are auto, any, none and tool", "tool_choice")
    return _TOOL_CHOICES[kind]


# ---- answers


def _message(served: ServedModel, content: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": served.name}
    return {**head, "content": content, "stop_reason": None, "stop_sequence": None}


def _content(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        blocks.append({"type": "thinking", "thinking": "".join(answer.reasoning), "signature": ""})
    if answer.text:
        blocks.append({"type": "text", "text": "".join(answer.text)})
    return blocks + [_tool_use(call) for call in answer.calls]


def _tool_use(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:  # cut short: in the way Anthropic tells clients to keep it
        arguments = {"INVALID_JSON": call.arguments}
    return {"type": "tool_use", "id": new_id("toolu_"), "name": call.name, "input": arguments}


def _ending(answer: Answer) -> dict[str, Any]:
    assert answer.completion is not None
    stop = answer.completion.stop
    if answer.finish_reason == "stop" and stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": _STOP_REASONS.get(answer.finish_reason, "end_turn"), "stop_sequence": None}


def _usage(answer: Answer, n_prompt: int) -> dict[str, Any]:
    assert answer.completion is not None
    n_cached = answer.completion.n_cached_tokens
    return {
        "input_tokens": n_prompt - n_cached,
        "output_tokens": len(answer.completion.token_ids),
        "cache_read_input_tokens": n_cached,
        "cache_creation_input_tokens": 0,
    }


async def _events(served: ServedModel, choices: Choices, n_prompt: int) -> AsyncGenerator[bytes, None]:
    blocks = _Blocks()
    try:
        usage = {"input_tokens": n_prompt, "output_tokens": 0}
        yield _event("message_start", message={**_message(served, []), "usage": usage})
        async for step in choices.steps():
            for event in blocks.events_of(step.pieces):
                yield event
            if step.chunk.completion is not None:
                for event in blocks.close():
                    yield event
                used = _usage(step.answer, n_prompt)
                yield _event("message_delta", delta=_ending(step.answer), usage=used)
                yield _event("message_stop")
    except Exception as error:
        yield sse.event(of_exception(error).anthropic_body, "error")
    finally:
        choices.cancel()


class _Blocks:
    """Which block of the content is open."""

    def __init__(self) -> None:
        self._index = -1
        self._open: type[Piece] | None = None

    def events_of(self, pieces: Sequence[Piece]) -> Iterator[bytes]:
        """The events of pieces; a block begins where their kind changes."""
        for piece in pieces:
            kind = CallBegun if isinstance(piece, CallArguments) else type(piece)
            if kind is not self._open or isinstance(piece, CallBegun):
                yield from self.close()
                self._index, self._open = self._index + 1, kind
                yield _event("content_block_start", index=self._index, content_block=_begun(piece))
            if not isinstance(piece, CallBegun):
                yield _event("content_block_delta", index=self._index, delta=_delta(piece))

    def close(self) -> Iterator[bytes]:
        """Ends the open block, if there is one."""
        if self._open is not None:
            yield _event("content_block_stop", index=self._index)
            self._open = None


def _begun(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, TextPiece):
        return {"type": "text", "text": ""}
    if isinstance(piece, ReasoningPiece):
        return {"type": "thinking", "thinking": "", "signature": ""}
    assert isinstance(piece, CallBegun)
    return _tool_use(ToolCall(piece.name, "{}"))


def _delta(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, TextPiece):
        return {"type": "text_delta", "text": piece.text}
    if isinstance(piece, ReasoningPiece):
        return {"type": "thinking_delta", "thinking": piece.text}
    assert isinstance(piece, CallArguments)
    return {"type": "input_json_delta", "partial_json": piece.text}


def _event(kind: str, **fields: Any) -> bytes:
    return sse.event({"type": kind, **fields}, kind)
