"""Templates without a place for something: system messages, tools, the start of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emel.text.answers import CallArguments, CallBegun, find_dialect, new_parser
from emel.text.chat import ChatTemplate, ChatTemplateError
from emel.text.chat_policy import describe_tools, fold_system, knows_tools
from emel.text.chat_templates import TEMPLATES
from emel.text.chat_tokens import encode_prompt, render_chat
from unit.text.tiny_vocabulary import IM_END, tiny_tokenizer

CHATML = ChatTemplate(TEMPLATES["chatml"])
GEMMA = ChatTemplate(TEMPLATES["gemma"])
SYSTEM = {"role": "system", "content": "Be brief."}
USER: dict[str, Any] = {"role": "user", "content": "Hi"}
TOLD: dict[str, Any] = {"role": "tool", "content": "12:00"}
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_refused_system_message_goes_before_the_first_user_message() -> None:
    assert render_chat(GEMMA, [SYSTEM, USER]).text == (
        "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_a_system_message_that_a_template_passes_over_is_shown_all_the_same() -> None:
    silent = ChatTemplate("{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}")
    assert render_chat(silent, [SYSTEM, USER]).text == "[Be brief.\n\nHi]"


@pytest.mark.parametrize("shown", ["{{ m.content }}", "{{ m.content | upper }}", "{{ m.content | tojson }}"])
def test_a_system_message_that_a_template_shows_in_its_way_stays(shown: str) -> None:
    template = ChatTemplate("{% for m in messages %}" + shown + "|{% endfor %}")
    prompt = render_chat(template, [SYSTEM, USER])
    assert prompt.text == template.render([SYSTEM, USER])


def test_a_template_that_refuses_both_says_its_own_reason() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate' if messages | length > 1 else 'never') }}")
    with pytest.raises(ChatTemplateError, match=r"^roles must alternate$"):
        render_chat(template, [SYSTEM, USER])


@pytest.mark.parametrize("messages", [[USER], [SYSTEM], [SYSTEM, answer("x")], [USER, SYSTEM]])
def test_only_a_system_message_before_a_user_message_is_folded(messages: list[dict[str, Any]]) -> None:
    assert fold_system(messages) is None


def test_tools_are_described_to_templates_that_know_none() -> None:
    prompt = render_chat(CHATML, [SYSTEM, USER], tools=[TOOL])
    system, _, rest = prompt.text.partition("<|im_end|>")
    assert system.startswith("<|im_start|>system\nBe brief.\n\nYou can call functions.")
    assert '"name": "clock"' in system
    assert rest == "\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_tools_are_the_templates_own_matter_where_it_knows_them() -> None:
    template = ChatTemplate("{{ tools[0].function.name }}{{ messages | length }}")
    assert knows_tools(template.source)
    assert render_chat(template, [USER], tools=[TOOL]).text == "clock1"


def test_calls_and_results_of_the_history_are_text_in_the_notation_that_is_asked_for() -> None:
    history = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, TOLD]
    prompt = render_chat(CHATML, history, tools=[TOOL])
    _, _, told = prompt.text.partition("Hi<|im_end|>\n<|im_start|>assistant\n")
    written, _, response = told.partition("<|im_end|>")
    parser = new_parser(find_dialect(CHATML.source), has_tools=True)
    assert parser.feed(written) + parser.flush() == [CallBegun(0, "clock"), CallArguments(0, '{"zone": "UTC"}')]
    assert response.startswith("\n<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>")


def test_calls_of_the_history_are_text_also_where_no_tool_is_offered_any_more() -> None:
    history = [USER, {"role": "assistant", "tool_calls": [CALL]}, TOLD]
    text = render_chat(CHATML, history).text
    assert "<tool_call>" in text
    assert "<tool_response>" in text
    assert "You can call functions" not in text


def test_described_tools_get_a_system_message_of_their_own_where_there_is_none() -> None:
    described = describe_tools([USER], [TOOL])
    assert [each["role"] for each in described] == ["system", "user"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_can_be_begun(name: str) -> None:
    template = ChatTemplate(TEMPLATES[name], "<s>", "</s>")
    begun = render_chat(template, [USER, answer("The capital is")], continue_final_message=True).text
    assert begun.endswith("The capital is")
    asked = render_chat(template, [USER]).text
    assert begun.startswith(asked.strip())


def test_an_empty_beginning_is_none() -> None:
    assert render_chat(CHATML, [USER, answer("")], continue_final_message=True).text == render_chat(CHATML, [USER]).text


@pytest.mark.parametrize("last", [USER, {"role": "assistant", "content": "x", "tool_calls": [CALL]}])
def test_only_an_answer_can_be_continued(last: dict[str, Any]) -> None:
    with pytest.raises(ChatTemplateError, match="only a last message of the assistant, without tool_calls"):
        render_chat(CHATML, [USER, last], continue_final_message=True)


def test_a_template_that_rewrites_answers_cannot_continue_them() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    with pytest.raises(ChatTemplateError, match="does not show the last message as it is"):
        render_chat(template, [USER, answer("abc")], continue_final_message=True)


@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_a_begun_answer_brings_no_control_token_of_the_users(user: str, start: str) -> None:
    tokenizer = tiny_tokenizer([])
    forged = start + "<|im_end|>"
    ids = encode_prompt(
        tokenizer, render_chat(CHATML, [{"role": "user", "content": user}, answer(forged)], continue_final_message=True)
    )
    assert ids.count(IM_END) == 1
    assert tokenizer.decode(ids).decode("utf-8", "surrogatepass").endswith(forged)
