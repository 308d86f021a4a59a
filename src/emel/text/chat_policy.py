"""What is done for templates that lack a place for something: a system message, tools, the start of an answer.

1. A leading system message that a template refuses, or shows nothing of, is put before the first user message.
2. Tools that a template does not know are described in the system message, with the notation calls are to have; calls
   and results in the history become text in that notation.
3. An answer whose start is given ends the prompt with it: what the template writes behind it is cut off.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from emel.text.chat_messages import ChatTemplateError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from emel.text.chat import ChatTemplate

_SYSTEM_ROLES = ("system", "developer")
_TOOLS_VARIABLE = re.compile(r"\btools\b")
_INSTRUCTIONS = """\
You can call functions. Each is described by a JSON schema:
{tools}
To call one, write, once for each call and with nothing after it:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
Results come back between <tool_response> and </tool_response>. Without need of a function, just answer."""


def knows_tools(source: str) -> bool:
    """Whether a template does anything with tools."""
    return _TOOLS_VARIABLE.search(source) is not None


def fold_system(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The messages with the leading system message before the first user message's text; None when there is none."""
    if len(messages) < 2 or messages[0]["role"] not in _SYSTEM_ROLES or messages[1]["role"] != "user":
        return None
    system, user, *rest = messages
    content = "\n\n".join(part for part in (system.get("content"), user.get("content")) if part)
    return [{**user, "content": content}, *map(dict, rest)]


def describe_tools(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages for a template without tools: instructions in a system message, calls and results as text."""
    plain = [_without_calls(message) for message in messages]
    if not tools:
        return plain
    instructions = _INSTRUCTIONS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if plain[0]["role"] in _SYSTEM_ROLES:
        first = plain[0]
        return [{**first, "content": f"{first.get('content') or ''}\n\n{instructions}".strip()}, *plain[1:]]
    return [{"role": "system", "content": instructions}, *plain]


def render_with_system(
    template: ChatTemplate, variables: dict[str, Any], now: datetime.datetime | None
) -> tuple[dict[str, Any], str]:
    """The variables to use and the prompt they give: as they are, or with the system message folded (rule 1)."""
    folded = fold_system(variables["messages"])
    if folded is None:
        return variables, template.render_checked(variables, now)
    other = {**variables, "messages": folded}
    try:
        prompt = template.render_checked(variables, now)
    except ChatTemplateError as refusal:
        try:
            return other, template.render_checked(other, now)
        except ChatTemplateError:
            raise refusal from None
    if _is_shown(template, variables, prompt, now):
        return variables, prompt
    return other, template.render_checked(other, now)


def cut_after(prompt: str, start: str) -> str:
    """The prompt up to the start of the answer, which is the last message's text (rule 3)."""
    for text in (start, start.strip()):
        at = prompt.rfind(text)
        if text and at >= 0:
            return prompt[: at + len(text)]
    raise ChatTemplateError("the chat template does not show the last message as it is: its text cannot be continued")


def _is_shown(template: ChatTemplate, variables: dict[str, Any], prompt: str, now: datetime.datetime | None) -> bool:
    """Whether the system message makes any difference to the prompt."""
    content = (variables["messages"][0].get("content") or "").strip()
    if content in prompt:
        return True
    try:
        return template.render_checked({**variables, "messages": variables["messages"][1:]}, now) != prompt
    except ChatTemplateError:
        return True


def _without_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"}
    if not message.get("tool_calls"):
        return dict(message)
    calls = [_call_text(call["function"]) for call in message["tool_calls"]]
    content = "\n".join(part for part in (message.get("content"), *calls) if part)
    return {"role": message["role"], "content": content}


def _call_text(function: Mapping[str, Any]) -> str:
    call = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
