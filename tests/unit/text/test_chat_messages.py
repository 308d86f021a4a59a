from __future__ import annotations

from typing import Any

import pytest

from emel.text.chat_messages import ChatTemplateError, ToolArguments, check_messages, plain_copy

USER = {"role": "user", "content": "hi"}


def call(arguments: object) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}


def test_messages_are_copied() -> None:
    message = {"role": "user", "content": "hi", "extra": [1, {"a": None}]}
    checked = check_messages([message])
    assert checked == [message]
    assert checked[0] is not message
    assert checked[0]["extra"] is not message["extra"]


def test_bytes_that_are_no_utf_8_may_be_in_messages() -> None:
    text = b"a\x80".decode("utf-8", "surrogateescape")
    assert check_messages([{"role": "user", "content": text}])[0]["content"] == text


def test_messages_join_text_parts_with_line_breaks() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert check_messages([{"role": "user", "content": parts}])[0]["content"] == "a\nb"


def test_messages_parse_the_arguments_of_tool_calls() -> None:
    checked = check_messages([call('{"city": "Köln", "days": 3}')])[0]["tool_calls"][0]
    assert checked["function"]["arguments"] == {"city": "Köln", "days": 3}
    assert checked["type"] == "function"


def test_tool_arguments_are_a_mapping_and_json_text() -> None:
    arguments = ToolArguments({"city": "Köln"})
    assert str(arguments) == '{"city": "Köln"}'
    assert "x" + arguments == 'x{"city": "Köln"}'
    assert arguments + "x" == '{"city": "Köln"}x'
    assert arguments == {"city": "Köln"}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages must be a list with at least one message"),
        ("hi", "messages must be a list"),
        (["hi"], r"messages\[0\] is of type str: a dict with role is needed"),
        ([USER, 3], r"messages\[1\] is of type int"),
        ([{"content": "hi"}], r"messages\[0\] has no role: allowed are assistant, context, .*, user"),
        ([{"role": "im_end", "content": "hi"}], r"messages\[0\].role is 'im_end': allowed are"),
        ([{"role": ["user"], "content": "hi"}], r"messages\[0\].role is no text: allowed are"),
        ([{"role": "user", "content": None}], r"messages\[0\] has no content: text is needed"),
        ([{"role": "user"}], r"messages\[0\] has neither content nor tool_calls"),
        ([USER, {"role": "user", "content": 3}], r"messages\[1\].content is a number: text or a list of text parts"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"content\[0\] is a part of type 'image_url': only text",
        ),
        ([{"role": "user", "content": ["a"]}], r"content\[0\] is no part with a type: only text"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\] is a part of type 'text': only text parts"),
        ([USER, call("{")], r"messages\[1\].tool_calls\[0\].function.arguments is not valid JSON: "),
        ([call("[1]")], r"arguments must be a JSON object"),
        ([call(None)], r"arguments must be a JSON object"),
        ([{"role": "assistant", "tool_calls": {"a": 1}}], r"messages\[0\].tool_calls must be a list"),
        ([{"role": "assistant", "tool_calls": [{"a": 1}]}], r"tool_calls\[0\] must have a function with a name"),
        ([{"role": "user", "content": object()}], r"messages\[0\].content is of type object: text, numbers"),
        ([{"role": "user", "content": "a\ud800b"}], r"messages\[0\].content has half of a surrogate pair, which is no"),
        ([call('{"a": "\\udfff"}')], r"function.arguments.a has half of a surrogate pair"),
        ([{"role": "user", "content": {1: 2}}], r"messages\[0\].content has a key that is no string: 1"),
    ],
)
def test_messages_of_a_wrong_form_are_named(messages: Any, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        check_messages(messages)


def test_plain_copy_refuses_endless_nesting() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ChatTemplateError, match="nested more than 64 deep"):
        plain_copy("tools", loop)
