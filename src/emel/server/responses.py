"""POST /v1/responses (https://platform.openai.com/docs/api-reference/responses): text and tools, nothing stored.

A request is turned into that of a chat and answered like one; only the words on the wire are others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from emel.server.body import read_shape
from emel.server.chat import prepare
from emel.server.connection import EventStream
from emel.server.errors import of_exception
from emel.server.generating import begin, in_thread, new_id, whole
from emel.server.response_events import ResponseEvents
from emel.server.response_items import call_item, message_item, reasoning_item
from emel.server.response_requests import ResponsesRequest, as_chat
from emel.server.served import ready_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from emel.server.choices import Answer, Choices
    from emel.server.served_model import ServedModel


async def create_response(request: Request) -> Response | EventStream:
    """The endpoint."""
    shape = await read_shape(request, ResponsesRequest)
    served = await ready_model(request, shape.model)
    chat = await in_thread(request, prepare, served, as_chat(shape))
    choices = begin(request, served, [chat.job()])
    head = _head(served, shape)
    if shape.stream:
        events = _events(choices, head, len(chat.prompt_ids))
        return EventStream(events, request.app.state.settings.ping_seconds, choices.cancel)
    [answer] = await whole(request, choices)
    return JSONResponse({**head, **_ending(answer, len(chat.prompt_ids)), "output": _output(answer)})


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
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_prompt + n_tokens,
        },
    }


def _output(answer: Answer) -> list[dict[str, Any]]:
    items = []
    if answer.reasoning:
        items.append(reasoning_item(new_id("rs_"), "".join(answer.reasoning)))
    if answer.text or not answer.calls:
        items.append(message_item(new_id("msg_"), "".join(answer.text)))
    return items + [call_item(new_id("fc_"), new_id("call_"), call) for call in answer.calls]


async def _events(choices: Choices, head: dict[str, Any], n_prompt: int) -> AsyncGenerator[bytes, None]:
    events = ResponseEvents()
    try:
        yield events.event("response.created", response=head)
        yield events.event("response.in_progress", response=head)
        async for step in choices.steps():
            for event in events.of_pieces(step.pieces):
                yield event
            if step.chunk.completion is not None:
                for event in events.close():
                    yield event
                whole = {**head, **_ending(step.answer, n_prompt), "output": events.output}
                yield events.event(f"response.{whole['status']}", response=whole)
    except Exception as error:
        told = of_exception(error).error
        failed = {**head, "status": "failed", "error": {"code": "server_error", "message": told["message"]}}
        yield events.event("response.failed", response=failed)
    finally:
        choices.cancel()
