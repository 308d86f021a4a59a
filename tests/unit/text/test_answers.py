"""Answers taken apart: every dialect, however the text is cut, and nothing lost of what is no call."""

from __future__ import annotations

import json
import keyword
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.answers import (
    CallArguments,
    CallBegun,
    Dialect,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolCall,
    find_dialect,
    new_parser,
)
from emel.text.answers.dialects import GEMMA, GENERIC, HARMONY, HERMES, LFM2, LLAMA3, MISTRAL

if TYPE_CHECKING:
    from collections.abc import Iterable

ALL = (HERMES, LLAMA3, MISTRAL, LFM2, GEMMA, HARMONY, GENERIC)
WEATHER = ToolCall("get_weather", '{"city": "Paris"}')
CLOCK = ToolCall("clock", "{}")
LOOK = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>"
JSON_CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


@dataclass(frozen=True)
class Call:
    """A call with all of its arguments."""

    index: int
    call: ToolCall


def joined(pieces: Iterable[Piece]) -> list[Piece | Call]:
    """The same with neighbours of one kind put together."""
    whole: list[Piece | Call] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if isinstance(last, TextPiece) and isinstance(piece, TextPiece):
            whole[-1] = TextPiece(last.text + piece.text)
        elif isinstance(last, ReasoningPiece) and isinstance(piece, ReasoningPiece):
            whole[-1] = ReasoningPiece(last.text + piece.text)
        elif isinstance(piece, CallBegun):
            whole.append(Call(piece.index, ToolCall(piece.name, "")))
        elif isinstance(piece, CallArguments):
            assert isinstance(last, Call)
            assert piece.index == last.index
            whole[-1] = Call(last.index, ToolCall(last.call.name, last.call.arguments + piece.text))
        else:
            whole.append(piece)
    return whole


def pieces_of(dialect: Dialect, *chunks: str, has_tools: bool = True, is_reasoning: bool = False) -> list[Piece | Call]:
    parser = new_parser(dialect, has_tools=has_tools, is_reasoning=is_reasoning)
    return joined([piece for chunk in chunks for piece in parser.feed(chunk)] + parser.flush())


ANSWERS: dict[str, tuple[Dialect, str, list[Piece | Call]]] = {
    "hermes": (HERMES, f"<tool_call>\n{JSON_CALL}\n</tool_call>", [Call(0, WEATHER)]),
    "hermes, text before, two calls": (
        HERMES,
        f'Let me look.\n\n<tool_call>{JSON_CALL}</tool_call>\n<tool_call>{{"name": "clock"}}</tool_call>',
        [TextPiece("Let me look."), Call(0, WEATHER), Call(1, CLOCK)],
    ),
    "hermes, reasoning": (
        HERMES,
        f"<think>\nWhere?\n</think>\n\n<tool_call>{JSON_CALL}</tool_call>",
        [ReasoningPiece("Where?"), Call(0, WEATHER)],
    ),
    "hermes, not closed": (HERMES, f"<tool_call>\n{JSON_CALL}", [Call(0, WEATHER)]),
    "hermes, arguments as text": (
        HERMES,
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        [Call(0, WEATHER)],
    ),
    "llama3, bare": (
        LLAMA3,
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        [Call(0, WEATHER)],
    ),
    "llama3, typed": (
        LLAMA3,
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}; {"name": "clock"}',
        [Call(0, WEATHER), Call(1, CLOCK)],
    ),
    "llama3, tag and Python": (
        LLAMA3,
        '<|python_tag|>brave_search.call(query="EMEL")',
        [Call(0, ToolCall("brave_search.call", '{"query": "EMEL"}'))],
    ),
    "mistral, list": (MISTRAL, f"[TOOL_CALLS][{JSON_CALL}]", [Call(0, WEATHER)]),
    "mistral, named": (
        MISTRAL,
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]clock[CALL_ID]a1b2c3d4e[ARGS]{}',
        [Call(0, WEATHER), Call(1, CLOCK)],
    ),
    "mistral, reasoning": (MISTRAL, "[THINK]Hm.[/THINK]Yes.", [ReasoningPiece("Hm."), TextPiece("Yes.")]),
    "lfm2": (
        LFM2,
        '<|tool_call_start|>[get_weather(city="Paris"), clock()]<|tool_call_end|>Checking.',
        [Call(0, WEATHER), Call(1, CLOCK), TextPiece("Checking.")],
    ),
    "lfm2, raw string": (
        LFM2,
        r"""<|tool_call_start|>[f(a=r"\d")]<|tool_call_end|>""",
        [Call(0, ToolCall("f", r'{"a": "\\d"}'))],
    ),
    "lfm2, no escapes of Python's": (
        LFM2,
        r"""<|tool_call_start|>[f(a="\d\n\\d\\\8\'")]<|tool_call_end|>""",
        [Call(0, ToolCall("f", r"""{"a": "\\d\n\\d\\\\8'"}"""))],
    ),
    "gemma, fenced": (GEMMA, '```tool_code\nprint(get_weather(city="Paris"))\n```', [Call(0, WEATHER)]),
    "gemma, list": (GEMMA, '[get_weather(city="Paris")]', [Call(0, WEATHER)]),
    "gemma, declared": (
        GEMMA,
        "<start_function_call>call:f{a:<escape>x{,}y<escape>,n:3,l:[1,<escape>b<escape>],o:{k:true}}<end_function_call>",
        [Call(0, ToolCall("f", '{"a": "x{,}y", "n": 3, "l": [1, "b"], "o": {"k": true}}'))],
    ),
    "harmony": (
        HARMONY,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Paris.<|return|>",
        [ReasoningPiece("Hm."), TextPiece("Paris.")],
    ),
    "harmony, call": (
        HARMONY,
        f'{LOOK}commentary to=functions.get_weather <|constrain|>json<|message|>{{"city": "Paris"}}<|call|>',
        [ReasoningPiece("Look."), Call(0, WEATHER)],
    ),
    "harmony, recipient behind the role": (
        HARMONY,
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>',
        [Call(0, WEATHER)],
    ),
    "harmony, preamble": (
        HARMONY,
        "<|channel|>commentary<|message|>So.<|end|><|start|>assistant to=functions.clock<|message|>{}<|call|>",
        [TextPiece("So."), Call(0, CLOCK)],
    ),
    "harmony, no form": (HARMONY, "Just text.", [TextPiece("Just text.")]),
    "generic, bare": (GENERIC, f"```json\n{JSON_CALL}\n```", [TextPiece(f"```json\n{JSON_CALL}\n```")]),
    "generic, object": (GENERIC, f'{{"tool_call": {JSON_CALL}}}', [Call(0, WEATHER)]),
    "generic, list": (GENERIC, f'{{"tool_calls": [{JSON_CALL}, {{"name": "clock"}}]}}',
                      [Call(0, WEATHER), Call(1, CLOCK)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_taken_apart_the_same_however_they_are_cut(name: str) -> None:
    dialect, answer, expected = ANSWERS[name]
    assert pieces_of(dialect, answer) == expected
    assert pieces_of(dialect, *answer) == expected
    for at in range(len(answer)):
        assert pieces_of(dialect, answer[:at], answer[at:]) == expected


@pytest.mark.parametrize("dialect", [HERMES, LFM2, GENERIC])
def test_reasoning_that_the_prompt_opened_needs_no_mark(dialect: Dialect) -> None:
    expected = [ReasoningPiece("So.\n\nYes."), TextPiece("42")]
    assert pieces_of(dialect, "\nSo.\n\nYes.\n</think>\n\n42", is_reasoning=True) == expected


def test_reasoning_is_streamed_but_for_what_may_be_its_end() -> None:
    parser = new_parser(HERMES, has_tools=False, is_reasoning=True)
    assert parser.feed("One two </th") == [ReasoningPiece("One two")]
    assert parser.feed("ree") == [ReasoningPiece(" </three")]
    assert parser.flush() == []


def test_text_is_streamed_but_for_what_may_be_a_mark() -> None:
    parser = new_parser(HERMES, has_tools=True)
    assert parser.feed("1 < 2") == [TextPiece("1 < 2")]
    assert parser.feed(" <tool") == []
    assert parser.feed("s>") == [TextPiece(" <tools>")]


def test_think_in_the_middle_of_an_answer_is_text() -> None:
    assert pieces_of(HERMES, "I <think> so</think>") == [TextPiece("I <think> so</think>")]


NO_CALLS = {
    "hermes, no JSON": (HERMES, "a <tool_call>what?</tool_call> b"),
    "hermes, no object": (HERMES, "<tool_call>[1, 2]</tool_call>"),
    "hermes, half": (HERMES, '<tool_call>{"name": "get_w'),
    "hermes, bad name": (HERMES, '<tool_call>{"name": "a b", "arguments": {}}</tool_call>'),
    "llama3, an object that is an answer": (LLAMA3, '{"answer": 42}'),
    "llama3, a name that is an answer": (LLAMA3, '{"name": "Paris", "country": "France"}'),
    "mistral": (MISTRAL, "[TOOL_CALLS]later"),
    "lfm2, positional": (LFM2, "<|tool_call_start|>[f(1)]<|tool_call_end|>"),
    "lfm2, no literal": (LFM2, "<|tool_call_start|>[f(a=open)]<|tool_call_end|>"),
    "lfm2, code": (LFM2, "<|tool_call_start|>__import__('os')<|tool_call_end|>"),
    "gemma": (GEMMA, "<start_function_call>call:f{a:<escape>b}<end_function_call>"),
    "generic": (GENERIC, "[1, 2, 3]"),
}


@pytest.mark.parametrize("name", NO_CALLS)
def test_what_is_no_call_stays_text(name: str) -> None:
    dialect, answer = NO_CALLS[name]
    shown = pieces_of(dialect, *answer)
    assert shown == [TextPiece(answer)] or [type(each) for each in shown] == [TextPiece]
    assert shown[0].text.replace(" ", "") == answer.replace(" ", "")  # type: ignore[union-attr]


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_without_tools_marks_of_calls_are_text(dialect: Dialect) -> None:
    for begin, end in dialect.call_ends.items():
        answer = f"See {begin}{JSON_CALL}{end}"
        assert pieces_of(dialect, *answer, has_tools=False) == [TextPiece(answer)]


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
@given(data=st.data())
def test_any_text_comes_out_alike_however_it_is_cut(dialect: Dialect, data: st.DataObject) -> None:
    marks = [*dialect.marks, *dialect.call_ends, *dialect.call_ends.values(), *dialect.reasoning, JSON_CALL, "f(a=1)"]
    parts = st.one_of(st.sampled_from(marks), st.text(alphabet="ab {}[]\n<|>`", max_size=6))
    answer = "".join(data.draw(st.lists(parts, max_size=8)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    chunks = [answer[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert pieces_of(dialect, *chunks) == pieces_of(dialect, answer)


VALUES = st.one_of(st.text(max_size=20), st.integers(), st.booleans(), st.none(), st.lists(st.integers()))


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES))
def test_arguments_survive(arguments: dict[str, object]) -> None:
    expected = [Call(0, ToolCall("f", json.dumps(arguments, ensure_ascii=False)))]
    written = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    assert pieces_of(HERMES, f"<tool_call>{written}</tool_call>") == expected
    assert pieces_of(LLAMA3, written) == expected
    assert pieces_of(MISTRAL, f"[TOOL_CALLS][{written}]") == expected
    compact = json.dumps({"name": "f", "arguments": arguments}, separators=(",", ":"))
    [told] = pieces_of(HERMES, *f"<tool_call>{compact}</tool_call>")
    assert isinstance(told, Call)
    assert json.loads(told.call.arguments) == arguments
    python = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if not any(map(keyword.iskeyword, arguments)):
        assert pieces_of(LFM2, f"<|tool_call_start|>[f({python})]<|tool_call_end|>") == expected


def test_deep_nesting_is_text_and_no_crash() -> None:
    for dialect in (HERMES, LFM2):
        [(begin, end)] = dialect.call_ends.items()
        answer = f"{begin}{'[' * 100_000}{end}"
        assert pieces_of(dialect, answer) == [TextPiece(answer)]


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        ("... <|channel|>analysis<|message|> ...", HARMONY),
        ("{{ '[AVAILABLE_TOOLS]' }}", MISTRAL),
        ("<|tool_list_start|>", LFM2),
        ("return a json object within <tool_call></tool_call> XML tags", HERMES),
        ("<|start_header_id|>{% if tools %}", LLAMA3),
        ("<|start_header_id|>", GENERIC),
        ("<start_of_turn>user", GEMMA),
        ("<|im_start|>", GENERIC),
    ],
)
def test_dialects_are_found_by_the_marks_of_a_template(source: str, dialect: Dialect) -> None:
    assert find_dialect(source) is dialect


FRAGMENTS = {
    "hermes": (HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": [1, "x', '", true]}}\n</tool_call>'),
    "llama3": (LLAMA3, '<|python_tag|>{"name": "f", "parameters": {"a": [1, "x', '", true]}}'),
    "mistral": (MISTRAL, '[TOOL_CALLS]f[ARGS]{"a": [1, "x', '", true]}'),
    "mistral, list": (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": [1, "x', '", true]}, "id": "123"}]'),
    "lfm2, JSON": (LFM2, '<|tool_call_start|>[{"name": "f", "arguments": {"a": [1, "x', '", true]}}]<|tool_call_end|>'),
    "harmony": (HARMONY, '<|channel|>commentary to=functions.f<|message|>{"a": [1, "x', '", true]}<|call|>'),
    "generic": (GENERIC, '<tool_call>{"name":"f","arguments":{"a":[1,"x', '",true]}}</tool_call>'),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_arguments_are_told_as_they_are_written(name: str) -> None:
    dialect, written, rest = FRAGMENTS[name]
    parser = new_parser(dialect, has_tools=True)
    assert joined(parser.feed(written)) == [Call(0, ToolCall("f", '{"a": [1, "x'))]
    told = parser.feed(rest) + parser.flush()
    assert "".join(each.text for each in told if isinstance(each, CallArguments)) == '", true]}'
    assert {type(each) for each in told} == {CallArguments}


def test_the_mark_of_an_end_may_stand_in_arguments() -> None:
    answer = '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call> So.'
    expected = [Call(0, ToolCall("f", '{"a": "</tool_call>"}')), TextPiece("So.")]
    assert pieces_of(HERMES, answer) == pieces_of(HERMES, *answer) == expected


# Answer: the arguments, and the text behind them.
CUT = {
    '<tool_call>{"name": "f", "arguments": {"a": "b': ('{"a": "b', ""),
    '<tool_call>{"name": "f", "arguments": {"a": 12': ('{"a": 12', ""),
    '<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>': ('{"a": ', "tru}}"),
    '<tool_call>{"name": "f", "arguments": {"a": open()}}</tool_call> So.': ('{"a": ', "open()}}So."),
    '<tool_call>{"name": "f", "arguments": {"a": 1, oh': ('{"a": 1, ', "oh"),
    '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>': ('{"a": 1}', ""),
    '<tool_call>{"name": "f", "arguments": {"a": "b\nc"}}</tool_call>': ('{"a": "b\\nc"}', ""),
}


@pytest.mark.parametrize("answer", CUT)
def test_arguments_that_are_cut_or_no_json_are_told_as_far_as_they_are_some(answer: str) -> None:
    arguments, text = CUT[answer]
    expected = [Call(0, ToolCall("f", arguments)), *([TextPiece(text)] if text else [])]
    assert pieces_of(HERMES, answer) == pieces_of(HERMES, *answer) == expected


@pytest.mark.parametrize("arguments", ["{}", '{"a": [1]}', "{", '{"a": ', "[]", "", "[" * 100_000])
def test_a_call_is_whole_when_its_arguments_are_an_object(arguments: str) -> None:
    assert ToolCall("f", arguments).is_whole == (arguments in {"{}", '{"a": [1]}'})


def test_a_half_of_a_surrogate_pair_stays_escaped() -> None:
    for answer in ('{"name": "f", "arguments": {"a": "\\ud83d"}}', "[f(a='\\ud83d')]"):
        [told] = pieces_of(GEMMA, answer)
        assert told == Call(0, ToolCall("f", '{"a": "\\ud83d"}'))
