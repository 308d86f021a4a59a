"""Tools on the wire: which of them a request offers, which it forces, and the calls that came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass
from emel.server.errors import invalid
from emel.server.generating import new_id
from emel.text.answers.call_reader import JSON_HEAD, CallReader
from emel.text.answers.call_syntax import read_json_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emel.server.shapes import ChatRequest
    from emel.text.answers import ToolCall

_ANYTHING: dict[str, Any] = {"type": "object"}


def chosen_tools(shape: ChatRequest) -> list[dict[str, Any]] | None:
    """The tools the model may use; None when there are none. ApiError 400 for what is no tool or no choice."""
    for index, tool in enumerate(shape.tools or ()):
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, dict):
            raise invalid(f"tools[{index}] must have the type 'function' and a function", "tools")
        if not isinstance(function.get("name"), str) or not function["name"]:
            raise invalid(f"tools[{index}].function.name must be a text", "tools")
        if not isinstance(function.get("parameters") or {}, dict):
            raise invalid(f"tools[{index}].function.parameters must be a JSON schema, an object", "tools")
    if not shape.tools:
        if shape.tool_choice not in (None, "none", "auto"):
            raise invalid("tool_choice asks for a tool, but there are no tools", "tool_choice")
        return None
    choice = shape.tool_choice
    if choice == "none":
        return None
    if isinstance(choice, dict):
        name = _named(choice)
        named = [tool for tool in shape.tools if tool["function"]["name"] == name]
        if not named:
            raise invalid(f"tool_choice names {name!r:.60}, which is none of the tools", "tool_choice")
        return named
    if choice not in (None, "auto", "required"):
        raise invalid(
            f"tool_choice is {choice!r:.60}: allowed are 'auto', 'none', 'required' and a function by its name",
            "tool_choice",
        )
    return shape.tools


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """A call that must come: as the JSON object of a schema, whatever the model's own notation is."""

    schema: dict[str, Any]

    def new_parser(self) -> CallReader:
        """What reads the object; text only if it was cut short before its arguments."""
        return CallReader(read_json_calls, heads=(JSON_HEAD,))


def tool_constraint(shape: ChatRequest, tools: Sequence[dict[str, Any]] | None) -> ForcedCall | None:
    """The call that `tool_choice` demands, if it does."""
    if not tools or not (shape.tool_choice == "required" or isinstance(shape.tool_choice, dict)):
        return None
    each = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["function"]["name"]},
                # Its references begin where it does, whatever it is put into.
                "arguments": {"$id": f"emel:tools/{index}", **(tool["function"].get("parameters") or _ANYTHING)},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for index, tool in enumerate(tools)
    ]
    one: dict[str, Any] = each[0] if len(each) == 1 else {"anyOf": each}
    if shape.parallel_tool_calls and shape.tool_choice == "required":
        return ForcedCall({"type": "array", "items": one, "minItems": 1})
    return ForcedCall(one)


def calls_on_wire(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """`tool_calls` of a message, each with an id that no other call has."""
    return [
        {"id": new_id("call_"), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def _named(choice: dict[str, Any]) -> str:
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    if choice.get("type", "function") != "function" or not isinstance(name, str):
        raise invalid('tool_choice must be {"type": "function", "function": {"name": ...}}', "tool_choice")
    return name
