"""The items of a response's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emel.text.answers import ToolCall


def message_item(item_id: str, text: str | None, status: str = "completed") -> dict[str, Any]:
    """A message of the assistant; without text it has no part yet."""
    content = [] if text is None else [text_part(text)]
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def text_part(text: str) -> dict[str, Any]:
    """The text of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def reasoning_item(item_id: str, text: str | None, status: str = "completed") -> dict[str, Any]:
    """What the model wrote to itself."""
    content = [] if text is None else [reasoning_part(text)]
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def reasoning_part(text: str) -> dict[str, Any]:
    """The text of reasoning."""
    return {"type": "reasoning_text", "text": text}


def status_of(call: ToolCall) -> str:
    """Of a call that is over."""
    return "completed" if call.is_whole else "incomplete"


def call_item(item_id: str, call_id: str, call: ToolCall, status: str) -> dict[str, Any]:
    """A call of a tool; one that is in progress has no arguments yet."""
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": call_id,
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    }
