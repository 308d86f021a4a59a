"""Requests to /v1/responses, and the chat each of them is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from emel.server.errors import invalid
from emel.server.shape import Shape
from emel.server.shape_errors import given, in_json
from emel.server.shapes import ChatRequest, refuse_transcript

_TEXT_PARTS = ("input_text", "output_text", "text")  # tuples: what clients send may have no hash
_KINDS = ("message", "function_call", "function_call_output", "reasoning")
_ROLES = ("assistant", "developer", "system", "user")


class ResponsesRequest(Shape):
    """POST /v1/responses."""

    model: str | None = None
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    reasoning: dict[str, Any] | None = None
    seed: int | None = None
    stream: bool | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_p: float | None = None
    top_k: int | None = None


def as_chat(shape: ResponsesRequest) -> ChatRequest:
    """The same request as one of a chat; ApiError 400 for what a chat cannot say."""
    if shape.previous_response_id is not None:
        raise invalid("previous_response_id is not supported: nothing is stored, send the conversation", "input")
    refuse_transcript(shape)
    messages: list[dict[str, Any]] = []
    if shape.instructions:
        messages.append({"role": "system", "content": shape.instructions})
    items = [{"role": "user", "content": shape.input}] if isinstance(shape.input, str) else shape.input
    for index, item in enumerate(items):
        _add(messages, item, f"input[{index}]")
    if not messages:
        raise invalid("input is empty: give a text or a list of items", "input")
    chat: ChatRequest = ChatRequest.model_validate(
        {
            "messages": messages,
            "max_tokens": shape.max_output_tokens,
            "seed": shape.seed,
            "temperature": shape.temperature,
            "top_p": shape.top_p,
            "top_k": shape.top_k,
            "tools": [_chat_tool(tool, index) for index, tool in enumerate(shape.tools or ())] or None,
            "tool_choice": _chat_tool_choice(shape.tool_choice),
            "parallel_tool_calls": shape.parallel_tool_calls,
            "reasoning_effort": (shape.reasoning or {}).get("effort"),
            "response_format": _response_format((shape.text or {}).get("format")),
        }
    )
    return chat


def _add(messages: list[dict[str, Any]], item: dict[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role not in _ROLES:
            raise invalid(f"{where}.role is {given(role)}: allowed are {', '.join(_ROLES)}", "input")
        messages.append({"role": role, "content": _text(item.get("content"), f"{where}.content")})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        if messages and messages[-1]["role"] == "assistant":  # several calls are one turn
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    elif kind == "function_call_output":
        told = {"tool_call_id": item.get("call_id"), "content": _text(item.get("output"), f"{where}.output")}
        messages.append({"role": "tool", **told})
    elif kind != "reasoning":  # what the model wrote to itself is not shown to it again
        raise invalid(f"{where}.type is {in_json(kind)}: allowed are {', '.join(_KINDS)}", "input")


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{where} is {given(content)}: it must be a text or a list of text parts", "input")
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _TEXT_PARTS:
            told = f"a part of type {in_json(kind)}" if kind is not None else "no part with a type"
            raise invalid(f"{where}[{index}] is {told}: only text parts are supported", "input")
    return "\n".join(str(part.get("text", "")) for part in content)


def _chat_tool(tool: dict[str, Any], index: int) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise invalid(f"tools[{index}].type is {given(tool.get('type'))}: only 'function' is supported", "tools")
    return {
        "type": "function",
        "function": {name: value for name, value in tool.items() if name not in ("type", "strict")},
    }


def _chat_tool_choice(choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    if isinstance(choice, dict):
        return {"type": choice.get("type", "function"), "function": {"name": choice.get("name")}}
    return choice


def _response_format(form: Any) -> dict[str, Any] | None:
    if form is None:
        return None
    if not isinstance(form, dict):
        raise invalid("text.format must be an object with a type", "text")
    if form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {"name": form.get("name"), "schema": form.get("schema")}}
