"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic has them (https://docs.anthropic.com/en/api/messages).

A request is turned into that of a chat and answered like one; only the words on the wire are others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.lazy_dataclasses import dataclass
from emel.server import sse
from emel.server.answering import respond
from emel.server.body import read_shape
from emel.server.chat import prepare
from emel.server.errors import invalid
from emel.server.generating import in_thread, new_id
from emel.server.holding import ready_model
from emel.server.message_requests import MessagesRequest, as_chat
from emel.text.answers import CallArguments, CallBegun, ReasoningPiece, TextPiece, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.results import Chunk
    from emel.server.choices import Answer
    from emel.server.connection import EventStream
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel
    from emel.text.answers import Piece

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}


async def create_message(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, MessagesRequest)
    if shape.max_tokens is None:
        raise invalid("max_tokens is missing: the request needs it", "max_tokens")
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    wording = _Wording(served, len(chat.prompt_ids))
    return await respond(request, served, [chat.job()], wording, is_streamed=bool(shape.stream))


async def count_tokens(request: Request) -> Response:
    """How many tokens a request's prompt has."""
    shape = await read_shape(request, MessagesRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    return JSONResponse({"input_tokens": len(chat.prompt_ids)})


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


@dataclass(frozen=True, slots=True)
class _Wording:
    """Anthropic's words for the answer to a message."""

    served: ServedModel
    n_prompt: int

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        [answer] = answers
        used = _usage(answer, self.n_prompt)
        return {**_message(self.served, _content(answer)), **_ending(answer), "usage": used}

    def telling(self, answers: list[Answer]) -> _Telling:
        del answers  # one
        return _Telling(self)


class _Telling:
    """The same as it comes, by blocks of the content."""

    def __init__(self, wording: _Wording) -> None:
        self._wording = wording
        self._blocks = _Blocks()

    def opening(self) -> bytes:
        usage = {"input_tokens": self._wording.n_prompt, "output_tokens": 0}
        return _event("message_start", message={**_message(self._wording.served, []), "usage": usage})

    def progress(self, progress: dict[str, int]) -> bytes:
        del progress  # this protocol has no word for it
        return b""

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        events = [*self._blocks.events_of(pieces)]
        if chunk.completion is not None:
            events += self._blocks.close()
            used = _usage(answer, self._wording.n_prompt)
            events.append(_event("message_delta", delta=_ending(answer), usage=used))
            events.append(_event("message_stop"))
        return b"".join(events)

    def ending(self) -> bytes:
        return b""

    def failed(self, error: ApiError) -> bytes:
        return sse.event(error.anthropic_body, "error")


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
