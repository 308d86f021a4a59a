"""Messages of a conversation, checked and brought into the one form templates are written for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROLES = frozenset({"assistant", "context", "developer", "function", "ipython", "model", "system", "tool", "user"})
_MAX_DEPTH = 64
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # the others stand for bytes that are no UTF-8: surrogateescape


class ToolArguments(dict[str, Any]):
    """Arguments of a tool call. Templates use them as a mapping or, some, as the JSON text OpenAI sends."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)


class ChatTemplateError(ValueError):
    """A template that cannot be used, or messages it does not take; the text says which and why."""


def check_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Plain copies of messages: text parts joined with line breaks, arguments of tool calls parsed.

    Raises ChatTemplateError naming the message, what was seen and what is allowed.
    """
    if isinstance(messages, str | bytes) or not messages:
        raise ChatTemplateError("messages must be a list with at least one message")
    return [_check_message(f"messages[{index}]", each) for index, each in enumerate(messages)]


def plain_copy(where: str, value: Any, depth: int = 0) -> Any:
    """A copy made of dict, list, str, int, float, bool and None alone, so that nothing live reaches a template."""
    if depth > _MAX_DEPTH:
        raise ChatTemplateError(f"{where} is nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if _HALF.search(value):
            raise ChatTemplateError(f"{where} has half of a surrogate pair, which is no character")
        return str(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ChatTemplateError(f"{where} has a key that is no string: {key!r}")
        return {str(key): plain_copy(f"{where}.{key}", each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_copy(f"{where}[{index}]", each, depth + 1) for index, each in enumerate(value)]
    raise ChatTemplateError(f"{where} is of type {type(value).__name__}: text, numbers, lists and dicts are allowed")


def _check_message(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copy: dict[str, Any] = plain_copy(where, dict(message))
    except (TypeError, ValueError) as error:
        if isinstance(error, ChatTemplateError):
            raise
        raise ChatTemplateError(f"{where} is of type {type(message).__name__}: a dict with role is needed") from None
    role = copy.get("role")
    if not isinstance(role, str) or role not in ROLES:
        told = f"{role!r:.40}" if isinstance(role, str) else "no text"
        seen = f"{where} has no role" if role is None else f"{where}.role is {told}"
        raise ChatTemplateError(f"{seen}: allowed are {', '.join(sorted(ROLES))}")
    if copy.get("content", "") is None and not copy.get("tool_calls"):
        raise ChatTemplateError(f"{where} has no content: text is needed where there are no tool_calls")
    if "content" in copy:
        copy["content"] = _check_content(f"{where}.content", copy["content"])
    elif not copy.get("tool_calls"):
        raise ChatTemplateError(f"{where} has neither content nor tool_calls")
    if copy.get("tool_calls"):
        _parse_arguments(f"{where}.tool_calls", copy["tool_calls"])
    return copy


def _check_content(where: str, content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        seen = {dict: "an object", bool: "true or false"}.get(type(content), "a number")
        raise ChatTemplateError(f"{where} is {seen}: text or a list of text parts is allowed")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            seen = "no part with a type" if kind is None else f"a part of type {kind!r:.40}"
            raise ChatTemplateError(f"{where}[{index}] is {seen}: only text parts are supported")
        texts.append(part["text"])
    return "\n".join(texts)


def _parse_arguments(where: str, calls: Any) -> None:
    if not isinstance(calls, list):
        raise ChatTemplateError(f"{where} must be a list")
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ChatTemplateError(f"{where}[{index}] must have a function with a name")
        arguments = function.get("arguments")
        call.setdefault("type", "function")
        place = f"{where}[{index}].function.arguments"
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as error:
                raise ChatTemplateError(f"{place} is not valid JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise ChatTemplateError(f"{place} must be a JSON object")
        function["arguments"] = ToolArguments(plain_copy(place, arguments))
