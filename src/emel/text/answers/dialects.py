"""The dialects in which models write calls of tools and reasoning, and which one a chat template belongs to.

| dialect | how a call is written |
|---|---|
| hermes | `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes 2 Pro, Qwen 2.5 and 3, SmolLM3 |
| llama3 | `{"name": ..., "parameters": {...}}` alone, or behind `<|python_tag|>`: Llama 3.1 to 3.3 |
| mistral | `[TOOL_CALLS]` and a JSON list, or `name[ARGS]{...}` |
| lfm2 | `<|tool_call_start|>[name(key="value")]<|tool_call_end|>` |
| gemma | a fenced block `tool_code`, a list of Python calls, or FunctionGemma's marks |
| harmony | gpt-oss: messages on channels |
| generic | for templates that know no tools: hermes, or the JSON object alone |
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from emel.lazy_dataclasses import dataclass
from emel.text.answers.call_reader import JSON_HEAD, NAMED_HEAD
from emel.text.answers.call_syntax import (
    read_any_calls,
    read_json_calls,
    read_named_arguments,
    read_python_or_json_calls,
)
from emel.text.answers.harmony import MARKS, HarmonyParser
from emel.text.answers.sections import SectionParser

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from emel.text.answers.pieces import AnswerParser, ToolCall

_THINK = ("<think>", "</think>")
_BRACKETS = ("[THINK]", "[/THINK]")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family of models writes calls and reasoning."""

    name: str
    call_ends: Mapping[str, str]
    """Mark that begins a call -> mark that ends it ("": the end of the answer)."""
    read_calls: Callable[[str], list[ToolCall] | None]
    reasoning: tuple[str, str] = _THINK
    may_be_bare: bool = False
    """Whether an answer that begins with a JSON object or a list may be a call."""
    marks: tuple[str, ...] = field(default=())
    """Control tokens whose text the parser must see."""
    heads: tuple[re.Pattern[str], ...] = (JSON_HEAD,)
    """What stands before the arguments of calls that are told as they are written."""

    @property
    def call_begins(self) -> tuple[str, ...]:
        """The marks that begin a call."""
        return tuple(self.call_ends)


_HERMES = {"<tool_call>": "</tool_call>"}
HERMES = Dialect("hermes", _HERMES, read_json_calls, marks=("<tool_call>", "</tool_call>", *_THINK))
LLAMA3 = Dialect("llama3", {"<|python_tag|>": ""}, read_any_calls, may_be_bare=True, marks=("<|python_tag|>", *_THINK))
MISTRAL = Dialect(
    "mistral",
    {"[TOOL_CALLS]": ""},
    read_named_arguments,
    _BRACKETS,
    marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", *_BRACKETS),
    heads=(NAMED_HEAD, JSON_HEAD),
)
LFM2 = Dialect(
    "lfm2",
    {"<|tool_call_start|>": "<|tool_call_end|>"},
    read_python_or_json_calls,
    marks=("<|tool_call_start|>", "<|tool_call_end|>", *_THINK),
)
GEMMA = Dialect(
    "gemma",
    {"<start_function_call>": "<end_function_call>", "```tool_code\n": "```", **_HERMES},
    read_any_calls,
    may_be_bare=True,
    marks=("<start_function_call>", "<end_function_call>", "<escape>"),
)
HARMONY = Dialect("harmony", {}, read_json_calls, ("", ""), marks=MARKS)
GENERIC = Dialect("generic", _HERMES, read_any_calls, may_be_bare=True, marks=_THINK)

# What a template of the dialect mentions; the first that matches wins.
_SIGNS: tuple[tuple[Dialect, tuple[str, ...]], ...] = (
    (HARMONY, ("<|channel|>", "<|message|>")),
    (MISTRAL, ("[TOOL_CALLS]",)),
    (MISTRAL, ("[AVAILABLE_TOOLS]",)),
    (LFM2, ("<|tool_call_start|>",)),
    (LFM2, ("<|tool_list_start|>",)),
    (HERMES, ("<tool_call>",)),
    (LLAMA3, ("<|python_tag|>",)),
    (LLAMA3, ("<|start_header_id|>", "tools")),
    (GEMMA, ("<start_function_call>",)),
    (GEMMA, ("<start_of_turn>",)),
)


def find_dialect(template: str) -> Dialect:
    """The dialect of a chat template, by the marks in its source; `GENERIC` when it has none."""
    for dialect, signs in _SIGNS:
        if all(sign in template for sign in signs):
            return dialect
    return GENERIC


def new_parser(dialect: Dialect, *, has_tools: bool, is_reasoning: bool = False) -> AnswerParser:
    """A parser for one answer. has_tools: calls are looked for; is_reasoning: the prompt opened the reasoning."""
    if dialect is HARMONY:
        return HarmonyParser(has_tools=has_tools)
    return SectionParser(dialect, has_tools=has_tools, is_reasoning=is_reasoning)
