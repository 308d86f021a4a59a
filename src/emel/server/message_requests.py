"""Requests to /v1/messages, and the chat each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from emel.server.errors import invalid
from emel.server.shape import Shape
from emel.server.shape_errors import given
from emel.server.shapes import ChatRequest, refuse_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    output_format: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    @property
    def format(self) -> dict[str, Any] | None:
        """The form the answer must have, by the field's name of today or that of before."""
        return (self.output_config or {}).get("format") or self.output_format


def as_chat(shape: MessagesRequest) -> ChatRequest:
    """The same request as one of a chat; ApiError 400 for what a chat cannot say."""
    refuse_transcript(shape)
    messages: list[dict[str, Any]] = []
    if shape.system:
        messages.append({"role": "system", "content": _joined(shape.system, "system")})
    for index, message in enumerate(shape.messages):
        messages += _chat_messages(message, f"messages[{index}]")
    fields: dict[str, Any] = {
        "messages": messages,
        "max_tokens": shape.max_tokens,
        "stop": shape.stop_sequences,
        "temperature": shape.temperature,
        "top_p": shape.top_p,
        "top_k": shape.top_k,
        "tools": [_chat_tool(tool, index) for index, tool in enumerate(shape.tools or ())] or None,
    }
    if shape.format is not None:
        fields["response_format"] = _response_format(shape.format)
    if shape.tool_choice is not None:
        fields["tool_choice"] = _chat_tool_choice(shape.tool_choice)
    if shape.thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": shape.thinking.get("type") == "enabled"}
    chat: ChatRequest = ChatRequest.model_validate(fields)
    return chat


def _chat_messages(message: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """A message, whose results of tools are messages of their own in a chat."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise invalid(f"{where}.role is {given(role)}: allowed are 'user' and 'assistant'", "messages")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise invalid(f"{where}.content is {given(content)}: it must be a text or a list of blocks", "messages")
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
            allowed = "allowed are text, tool_use, tool_result and thinking"
            raise invalid(f"{where}.content[{index}].type is {given(kind)}: {allowed}", "messages")
    if texts or calls:
        yield {"role": role, "content": "\n".join(texts), **({"tool_calls": calls} if calls else {})}


def _joined(content: str | list[dict[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(b, dict) and b.get("type") == "text" for b in content):
        raise invalid(f"{where} must be a text or a list of text blocks", where.partition("[")[0])
    return "\n".join(str(block.get("text", "")) for block in content)


def _response_format(form: Any) -> dict[str, Any]:
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise invalid('the format of the output must be {"type": "json_schema", "schema": {...}}', "output_config")
    return {"type": "json_schema", "json_schema": {"schema": form["schema"]}}


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
        raise invalid(f"tool_choice.type is {given(kind)}: allowed are auto, any, none and tool", "tool_choice")
    return _TOOL_CHOICES[kind]
