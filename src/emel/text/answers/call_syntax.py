"""How models write calls of tools: each function reads one notation and gives the calls, or None when it is not one.

Arguments come out as the text of a JSON object. Nothing is evaluated: Python's notation is read with `ast` as literals.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from emel.text.answers.pieces import ToolCall

_MOST_CHARACTERS = 256 * 1024
_NAME = re.compile(r"[A-Za-z_][\w.-]*\Z")
_NAMED_ARGUMENTS = re.compile(r"\s*(?:\[TOOL_CALLS\])?\s*([A-Za-z_][\w.-]*)(?:\[CALL_ID\]\w+)?\[ARGS\]\s*")
_DECLARED_CALL = re.compile(r"\s*call:([\w.-]+)\{")
_DECLARED_KEY = re.compile(r",?\s*([\w.-]+):")
_ESCAPE = "<escape>"
_BACKSLASHED = re.compile(r"""\\(?:[\\'"abfnrtvxuUN0-7\r\n]|(?P<unknown>.))""")
_RAW_STRING = re.compile(r"""\b[rR][bB]?["']""")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json_calls(text: str) -> list[ToolCall] | None:
    """JSON objects with a name and arguments (or parameters): one, several after each other, or in a list.

    The object may stand under "function", "tool_call" or "tool_calls". Written by Hermes, Qwen, Llama 3, Mistral.
    """
    calls: list[ToolCall] = []
    decoder = json.JSONDecoder()
    text = _without_fence(text)
    if not text or len(text) > _MOST_CHARACTERS:
        return None
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        found = _calls_in(value)
        if found is None:
            return None
        calls += found
        while at < len(text) and text[at] in " \t\r\n;,":
            at += 1
    return calls or None


def read_python_calls(text: str) -> list[ToolCall] | None:
    """`[name(key="value", n=1), other()]`, or one call alone: LFM2 and prompted Gemma (also print(...) around one)."""
    text = _without_fence(text)
    if not text or len(text) > _MOST_CHARACTERS:
        return None
    try:
        body = ast.parse(_known_escapes(text), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = body.elts if isinstance(body, ast.List | ast.Tuple) else [body]
    calls = [_python_call(node) for node in nodes]
    return [call for call in calls if call is not None] if calls and None not in calls else None


def _known_escapes(text: str) -> str:
    r"""The same literals, but Python need not warn (or raise, if asked) that it keeps the backslash of "\d"."""
    if _RAW_STRING.search(text):
        return text
    return _BACKSLASHED.sub(lambda found: "\\" + found[0] if found["unknown"] else found[0], text)


def read_named_arguments(text: str) -> list[ToolCall] | None:
    """`name[ARGS]{...}`, repeated (Mistral since 2025); or the JSON list before it."""
    calls: list[ToolCall] = []
    decoder = json.JSONDecoder()
    at = 0
    while match := _NAMED_ARGUMENTS.match(text, at):
        try:
            value, at = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        calls.append(ToolCall(match[1], json_text(value)))
    if text[at:].strip():
        return None if calls else read_json_calls(text)
    return calls or None


def read_declared_calls(text: str) -> list[ToolCall] | None:
    """`call:name{key:<escape>text<escape>,n:3}`
    (FunctionGemma: https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices).
    """
    match = _DECLARED_CALL.match(text)
    if match is None:
        return None
    value = _declared_object(text, match.end())
    if value is None or text[value[1] :].strip():
        return None
    return [ToolCall(match[1], json_text(value[0]))]


def read_python_or_json_calls(text: str) -> list[ToolCall] | None:
    """Python's notation, or JSON."""
    return read_python_calls(text) or read_json_calls(text)


def read_any_calls(text: str) -> list[ToolCall] | None:
    """Whatever of the notations it is."""
    return read_json_calls(text) or read_python_calls(text) or read_declared_calls(text)


def _calls_in(value: Any) -> list[ToolCall] | None:
    if isinstance(value, list):
        each = [_calls_in(item) for item in value]
        return None if None in each else [call for calls in each if calls is not None for call in calls]
    if not isinstance(value, dict):
        return None
    for wrapper in ("function", "tool_call", "tool_calls"):
        if isinstance(value.get(wrapper), dict | list):
            return _calls_in(value[wrapper])
    call = _call_of(value)
    return None if call is None else [call]


def _call_of(value: dict[str, Any]) -> ToolCall | None:
    """A name with arguments, or a name and nothing else."""
    name = value.get("name", value.get("function"))
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if arguments is None and len(value) == 1:
        arguments = {}
    if not isinstance(name, str) or not _NAME.match(name) or not isinstance(arguments, dict):
        return None
    return ToolCall(name, json_text(arguments))


def _python_call(node: ast.expr) -> ToolCall | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id == "print" and len(node.args) == 1 and not node.keywords:
        return _python_call(node.args[0])
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return None
    try:
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        return ToolCall(ast.unparse(node.func), json_text(arguments))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _declared_object(text: str, at: int) -> tuple[dict[str, Any], int] | None:
    """The object whose brace was before `at`, and where it ends."""
    found: dict[str, Any] = {}
    while match := _DECLARED_KEY.match(text, at):
        value = _declared_value(text, match.end())
        if value is None:
            return None
        found[match[1]], at = value
    return (found, at + 1) if text[at : at + 1] == "}" else None


def _declared_value(text: str, at: int) -> tuple[Any, int] | None:
    if text.startswith(_ESCAPE, at):
        begin = at + len(_ESCAPE)
        end = text.find(_ESCAPE, begin)
        return None if end < 0 else (text[begin:end], end + len(_ESCAPE))
    if text.startswith("{", at):
        return _declared_object(text, at + 1)
    if text.startswith("[", at):
        return _declared_list(text, at + 1)
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _declared_list(text: str, at: int) -> tuple[list[Any], int] | None:
    values: list[Any] = []
    while not text.startswith("]", at):
        value = _declared_value(text, at)
        if value is None:
            return None
        values.append(value[0])
        at = value[1]
        if text.startswith(",", at):
            at += 1
    return values, at + 1


def _without_fence(text: str) -> str:
    """Without the fence of a Markdown block around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text[text.index("\n") + 1 : -3].strip()
    return text


def json_text(value: Any) -> str:
    """JSON as people read it; halves of surrogate pairs, which are no characters, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or _SURROGATE.search(text) is None else json.dumps(value)
