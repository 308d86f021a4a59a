"""Prompts of chats as token ids, in which only the template writes control tokens (docs/decisions says why this way).

A template may trim, split, test and repeat what users wrote, so their text cannot be cut out of the prompt afterwards.
Instead the prompt is rendered once more with every character of theirs that occurs in a control token's text exchanged
for a private twin: whatever control tokens are in that *reference* are the template's own. Then, in this order, the
first prompt with the same control tokens is taken:

    1. as it is            nearly always: nobody wrote a control token
    2. with broken tokens  a private mark inside each control token's text that a user wrote
    3. the reference       whatever the template did to put one together from pieces

Twins and marks come from the private-use planes and are not in the input; they are turned back after special tokens
have been looked for, so the model reads exactly what was written.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from emel.lazy_dataclasses import dataclass
from emel.text.chat_messages import ChatTemplateError, check_messages, plain_copy
from emel.text.chat_policy import cut_after, describe_tools, knows_tools, render_with_system
from emel.text.errors import shown
from emel.text.tokenizer import as_text

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from emel.text.chat import ChatTemplate
    from emel.text.tokenizer import Tokenizer

_FIRST_PRIVATE = 0xF0000
_LAST_PRIVATE = 0x10FFFD
_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
# What templates look at, not through: kept as it is, so that they take the same branches.
# fmt: off
_STRUCTURE = frozenset({
    "arguments", "content", "description", "documents", "enum", "function", "id", "items", "name", "parameters",
    "properties", "reasoning_content", "required", "role", "text", "title", "tool_call_id", "tool_calls", "type",
})
# fmt: on
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat as a template writes it, and what it was made of."""

    text: str
    template: ChatTemplate
    variables: dict[str, Any]
    is_continued: bool
    now: datetime.datetime | None

    def render_with(self, variables: dict[str, Any]) -> str:
        """The prompt of other variables of the same form."""
        text = self.template.render_checked(variables, self.now)
        return cut_after(text, variables["messages"][-1]["content"]) if self.is_continued else text


def render_chat(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    /,
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    now: datetime.datetime | None = None,
    **kwargs: Any,
) -> ChatPrompt:
    """The prompt of a chat. ChatTemplateError as ChatTemplate.render raises it.

    continue_final_message: the last message, of the assistant, is the start of the answer: the prompt ends with its
    text. What a template has no place for is dealt with as chat_policy.py says.
    """
    is_continued = False
    if continue_final_message:
        messages = check_messages(messages)
        _check_continued(messages[-1])
        is_continued = bool(messages[-1]["content"])
        if not is_continued:  # an answer without a start is an answer
            messages = messages[:-1]
    if tools is not None and not isinstance(tools, list | tuple):
        raise ChatTemplateError(f"tools is {shown(tools)}: it must be a list of dicts")
    if not knows_tools(template.source):
        messages, tools = describe_tools(check_messages(messages), plain_copy("tools", tools) or ()), None
    variables = template.variables(
        messages, tools, add_generation_prompt=add_generation_prompt and not is_continued, **kwargs
    )
    variables, text = render_with_system(template, variables, now)
    if is_continued:
        text = cut_after(text, variables["messages"][-1]["content"])
    return ChatPrompt(text, template, variables, is_continued, now)


def encode_prompt(tokenizer: Tokenizer, prompt: ChatPrompt) -> list[int]:
    """Token ids of a chat: exactly one begin token if the model has one, no control token that a user wrote."""
    variables, text = prompt.variables, prompt.text
    shield = _Shield(tokenizer.control_texts(), [*_strings(variables), prompt.template.source])
    try:
        reference = prompt.render_with(shield.with_twins(variables))
    except ChatTemplateError as error:
        raise ChatTemplateError(f"the chat template fails when user text is shielded from it: {error}") from error
    expected = tokenizer.control_ids_in(reference)
    if tokenizer.control_ids_in(text) != expected:
        text = prompt.render_with(shield.with_marks(variables))
        if tokenizer.control_ids_in(text) != expected:
            text = reference
    return tokenizer.with_bos(tokenizer.encode_marked(as_text(text), shield.restore, parse_special=True))


def encode_chat(
    tokenizer: Tokenizer, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], /, **options: Any
) -> list[int]:
    """Token ids of a chat; `options` are those of render_chat, whose errors come through."""
    return encode_prompt(tokenizer, render_chat(template, messages, **options))


def _check_continued(message: Mapping[str, Any]) -> None:
    if message["role"] != "assistant" or message.get("tool_calls"):
        raise ChatTemplateError("only a last message of the assistant, without tool_calls, can be continued")


class _Shield:
    """Exchanges characters of user text for private ones; `restore` (for str.translate) takes them back."""

    def __init__(self, control_texts: Sequence[str], strings: Sequence[str]) -> None:
        letters = sorted(set("".join(control_texts)))
        first = _free_block(strings, 1 + len(letters))
        self._mark = chr(first)
        self._twins = {ord(letter): chr(first + 1 + place) for place, letter in enumerate(letters)}
        self.restore: dict[int, str] = {ord(twin): chr(letter) for letter, twin in self._twins.items()}
        self.restore[first] = ""
        self._control_texts = control_texts

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        """Only for those who write control tokens: Gemma has thousands, a tenth of a second to compile."""
        longest_first = sorted((each for each in self._control_texts if len(each) > 1), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def with_twins(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Variables in which users contribute no character of any control token."""
        return {
            name: _map_strings(value, lambda text: text.translate(self._twins)) for name, value in variables.items()
        }

    def with_marks(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Variables in which no string of a user holds a whole control token."""
        return {name: _map_strings(value, self._broken) for name, value in variables.items()}

    def _broken(self, text: str) -> str:
        # Again until nothing is found: breaking one token leaves those that overlap it.
        while self._control is not None and self._control.search(text):
            text = self._control.sub(lambda match: match[0][0] + self._mark + match[0][1:], text)
        return text


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_strings(each, change) for each in value]
    if isinstance(value, dict):
        return type(value)(
            {
                key if key in _STRUCTURE else change(key): each
                if _is_structure(key, each)
                else _map_strings(each, change)
                for key, each in value.items()
            }
        )
    return value


def _is_structure(key: str, value: Any) -> bool:
    """Roles, which chat_messages.py has checked, and plain words that say what kind of thing this is."""
    return key in ("role", "type") and isinstance(value, str) and _IDENTIFIER.match(value) is not None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _strings(each)


def _free_block(strings: Sequence[str], n: int) -> int:
    """The first of n private characters, in a row, that no string has."""
    used = sorted({ord(each) for text in strings for each in _PRIVATE.findall(text)})
    first = _FIRST_PRIVATE
    for taken in used:
        if taken >= first + n:
            break
        first = taken + 1
    if first + n > _LAST_PRIVATE:
        raise ChatTemplateError("the messages use every private character of Unicode: none is left to shield them with")
    return first
