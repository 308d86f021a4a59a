"""POST /v1/responses (https://platform.openai.com/docs/api-reference/responses): text and tools, nothing stored.

A request is turned into that of a chat and answered like one; only the words on the wire are others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.server.answering import respond
from emel.server.body import read_shape
from emel.server.chat import prepare
from emel.server.generating import in_thread, new_id
from emel.server.holding import ready_model
from emel.server.response_events import ResponseEvents
from emel.server.response_items import call_item, message_item, reasoning_item, status_of
from emel.server.response_requests import ResponsesRequest, as_chat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.engine.results import Chunk
    from emel.server.choices import Answer
    from emel.server.connection import EventStream
    from emel.server.errors import ApiError
    from emel.server.served_model import ServedModel
    from emel.text.answers import Piece


async def create_response(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, ResponsesRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    wording = _Wording(_head(served, shape), len(chat.prompt_ids))
    return await respond(request, served, [chat.job()], wording, is_streamed=bool(shape.stream))


async def count_input_tokens(request: Request) -> Response:
    """How many tokens a request's prompt has."""
    shape = await read_shape(request, ResponsesRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    return JSONResponse({"object": "response.input_tokens", "input_tokens": len(chat.prompt_ids)})


def _head(served: ServedModel, shape: ResponsesRequest) -> dict[str, Any]:
    """A response as far as it is known before its answer."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": shape.instructions,
        "max_output_tokens": shape.max_output_tokens,
        "metadata": shape.metadata or {},
        "model": served.name,
        "output": [],
        "parallel_tool_calls": shape.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": (shape.reasoning or {}).get("effort"), "summary": None},
        "store": False,
        "temperature": shape.temperature,
        "text": shape.text or {"format": {"type": "text"}},
        "tool_choice": shape.tool_choice or "auto",
        "tools": shape.tools or [],
        "top_p": shape.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "system_fingerprint": served.fingerprint,
    }


def _ending(answer: Answer, n_prompt: int) -> dict[str, Any]:
    """How it ended, and what it took."""
    assert answer.completion is not None
    is_whole = answer.completion.finish_reason != "length"
    n_tokens = len(answer.completion.token_ids)
    return {
        "status": "completed" if is_whole else "incomplete",
        "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
        "usage": {
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": answer.completion.n_cached_tokens},
            "output_tokens": n_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.n_reasoning_tokens},
            "total_tokens": n_prompt + n_tokens,
        },
    }


def _output(answer: Answer) -> list[dict[str, Any]]:
    items = []
    if answer.reasoning:
        items.append(reasoning_item(new_id("rs_"), "".join(answer.reasoning)))
    if answer.text or not answer.calls:
        items.append(message_item(new_id("msg_"), "".join(answer.text)))
    return items + [call_item(new_id("fc_"), new_id("call_"), call, status_of(call)) for call in answer.calls]


class _Wording:
    """OpenAI's words for the answer to a response's request."""

    def __init__(self, head: dict[str, Any], n_prompt: int) -> None:
        self._head, self._n_prompt = head, n_prompt

    def whole(self, answers: list[Answer]) -> dict[str, Any]:
        [answer] = answers
        return {**self._head, **_ending(answer, self._n_prompt), "output": _output(answer)}

    def telling(self, answers: list[Answer]) -> _Telling:
        del answers  # one
        return _Telling(self._head, self._n_prompt)


class _Telling:
    """The same as it comes, by items."""

    def __init__(self, head: dict[str, Any], n_prompt: int) -> None:
        self._head, self._n_prompt = head, n_prompt
        self._told = ResponseEvents()

    def opening(self) -> bytes:
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._told.event(kind, response=self._head) for kind in kinds)

    def progress(self, progress: dict[str, int]) -> bytes:
        del progress  # this protocol has no word for it
        return b""

    def events(self, answer: Answer, pieces: Sequence[Piece], chunk: Chunk) -> bytes:
        events = [*self._told.of_pieces(pieces)]
        if chunk.completion is not None:
            events += self._told.close()
            whole = {**self._head, **_ending(answer, self._n_prompt), "output": self._told.output}
            events.append(self._told.event(f"response.{whole['status']}", response=whole))
        return b"".join(events)

    def ending(self) -> bytes:
        return b""

    def failed(self, error: ApiError) -> bytes:
        told = {"code": "server_error", "message": error.error["message"]}
        return self._told.event("response.failed", response={**self._head, "status": "failed", "error": told})
