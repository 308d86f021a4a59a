from __future__ import annotations

import datetime
from typing import Any

import pytest

from emel.text.chat import ChatTemplate, ChatTemplateError, load_chat_template
from emel.text.chat_templates import TEMPLATES
from emel.text.tokenizer import load_tokenizer
from unit.text.tiny_vocabulary import metadata, string_array, tiny_metadata

USER = {"role": "user", "content": "hi"}
TURNS = [USER, {"role": "assistant", "content": "<think>well</think>\nhello "}, {"role": "user", "content": " bye "}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Né <b>", "parameters": {"a": 1, "B": 2}}}]


def render(source: str, messages: Any = (USER,), /, **kwargs: Any) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(messages, **kwargs)


def test_chatml_writes_every_message_and_opens_the_answer() -> None:
    expected = "<|im_start|>user\nhi<|im_end|>\n"
    assert render(TEMPLATES["chatml"]) == expected + "<|im_start|>assistant\n"
    assert render(TEMPLATES["chatml"], add_generation_prompt=False) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("{{ tools[0].function | tojson }}", '{"name": "f", "description": "Né <b>", "parameters": {"a": 1, "B": 2}}'),
        ("{{ {'a': [1]} | tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "29 Nov 2026"),
        ("{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role[0] }}{% endfor %}", "uu"),
        ("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role[0] }}{% endfor %}", "ua"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "hi"),
        (
            (
                "{% set n = namespace(n=0) %}{% for m in messages[::-1] %}{% set n.n = n.n + loop.length %}{% endfor %}"
                "{{ n.n }}"
            ),
            "9",
        ),
        ("{% set c = messages[1].content.split('</think>')[-1].lstrip('\n') | trim %}{{ c ~ '!' ~ 1 }}", "hello!1"),
        ("{% for k, v in tools[0].function.parameters | dictsort %}{{ k }}={{ v }};{% endfor %}", "a=1;B=2;"),
        ("{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say('a') }}{{ say(x='b') }}", "[a][b]"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "2"),
        ("{{ messages | map(attribute='content') | join('|') }}", "hi|<think>well</think>\nhello | bye "),
        (
            "{{ ', '.join(['a', 'b']) }}{{ 'a-b'.replace('-', '+') }}{{ '%s=%d' % ('n', 3) }}{{ '{}'.format('z') }}",
            "a, ba+bn=3z",
        ),
        (
            "{{ messages[0].missing is defined }}{{ missing }}{{ none }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ range(3) | list }}",
            "FalseNone10243[0, 1, 2]",
        ),
        ("{% if enable_thinking is defined and not enable_thinking %}off{% endif %}", "off"),
        ("{{ cat.items() | list }}{{ cat.get('x', 'y') }}", "[('sound', 'miaow')]y"),
        ("{% set x %}in {{ messages[0].content }}{% endset %}{{ x | upper }}", "IN HI"),
        (
            "3{% for m in messages recursive %}{% if loop.depth < 3 %}{{ loop([m]) }}{% endif %}.{% endfor %}",
            "3.........",
        ),
    ],
)
def test_template_has_what_templates_use(source: str, expected: str) -> None:
    now = datetime.datetime(2026, 11, 29)
    assert render(source, TURNS, tools=TOOLS, now=now, enable_thinking=False, cat={"sound": "miaow"}) == expected


def test_template_may_print_tool_arguments_or_join_them_as_text() -> None:
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "é"}'}}]}
    source = (
        "{% set a = messages[0].tool_calls[0].function.arguments %}"
        "{{ a }}{{ 'x' + a + 'y' }}{{ a ~ '' }}{{ a | tojson }}{{ a.a }}"
    )
    assert render(source, [message]) == '{"a": "é"}x{"a": "é"}y{"a": "é"}{"a": "é"}é'


def test_template_refusal_is_given_in_its_own_words() -> None:
    with pytest.raises(ChatTemplateError, match=r"\Aroles must alternate\Z"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ raise_exception('l1\\nl2\x1b[31m\u2028l3') }}", r"l1 l2\x1b[31m l3"),
        ("{{ nothing['a\x1b[31m\\nb'].c }}", "the chat template failed: 'nothing' is undefined"),
        ("{{ {}['a\x1b[31m\\nb'].c }}", r"the chat template failed: 'dict object' has no attribute 'a\x1b[31m\nb'"),
    ],
)
def test_template_errors_are_one_line_without_control_characters(source: str, expected: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render(source)
    assert str(caught.value) == expected


def test_template_that_fails_without_content_names_the_message() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    with pytest.raises(ChatTemplateError, match=r"\Amessages\[1\] has no content, and the chat template failed"):
        render("{{ messages[1].content + 'a' }}", [USER, call])
    with pytest.raises(ChatTemplateError, match=r"\Athe chat template failed: 'nothing' is undefined"):
        render("{{ nothing.at.all }}", [USER, call])


def test_template_cannot_change_what_it_is_given() -> None:
    messages = [dict(USER)]
    with pytest.raises(ChatTemplateError, match="access to attribute 'append' of 'list' object is unsafe"):
        render("{{ messages.append(1) }}", messages)
    assert messages == [USER]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for %}", "the chat template is malformed in line 1: "),
        ("\n\n{{ x | nothing }}", "malformed in line 3: No filter named 'nothing'"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "the chat template cannot be compiled: RecursionError"),
        ("{% if a %}" * 200 + "{% endif %}" * 200, "the chat template cannot be compiled: "),
        ("x" * 300_000, "has 300000 characters: allowed are 262144"),
        ("{{ messages[0].content + 1 }}", "the chat template failed: "),
        ("{{ nothing.at.all }}", "the chat template failed: 'nothing' is undefined"),
        ("{{ strftime_now('%99999999d') }}", "strftime_now takes a date format"),
        ("{{ {} | tojson(indent=99) }}", "tojson takes an indent from 0 to 16, not 99"),
        ("{% include 'other' %}", "the chat template failed: "),
    ],
)
def test_template_that_cannot_be_used_says_why(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render(source)


@pytest.mark.parametrize("name", ["bos_token", "eos_token", "raise_exception", "_x"])
def test_template_variables_of_its_own_cannot_be_given(name: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"the template variable '{name}' is set by EMEL"):
        render("", **{name: "x"})


def test_load_takes_the_template_of_the_file() -> None:
    found = tiny_metadata(chat_template="{{ bos_token }}-{{ eos_token }}")
    template = load_chat_template(found, load_tokenizer(found))
    assert template.name == "file"
    assert template.render([USER]) == "<|im_start|>-<|im_end|>"


def test_load_without_a_template_takes_chatml() -> None:
    found = tiny_metadata()
    template = load_chat_template(found, load_tokenizer(found))
    assert (template.name, template.source) == ("chatml", TEMPLATES["chatml"])


def test_load_falls_back_to_chatml_only_with_its_markers() -> None:
    plain = metadata(model="gpt2", tokens=string_array(["a", "<|im_start|>"]))
    with pytest.raises(ChatTemplateError, match=r"no chat template .* give one by name \(chatml, llama2, "):
        load_chat_template(plain, load_tokenizer(plain))


@pytest.mark.parametrize("name", ["template", "tokenizer", "args", "kwargs", "context", "messages_", "range"])
def test_template_variable_may_have_the_name_of_an_argument_of_ours(name: str) -> None:
    variables: dict[str, Any] = {name: 5}
    assert render("{{ " + name + " }}", TURNS, **variables) == "5"


def test_template_variable_may_be_named_self_which_jinja_keeps_for_itself() -> None:
    variables: dict[str, Any] = {"self": 5}
    assert render("{{ self is defined }}", TURNS, **variables) == "True"


@pytest.mark.parametrize("name", ["bos_token", "raise_exception", "strftime_now", "_private"])
def test_template_variable_that_is_set_cannot_be_given(name: str) -> None:
    variables: dict[str, Any] = {name: 5}
    with pytest.raises(ChatTemplateError, match=f"the template variable '{name}' is set by EMEL"):
        render("", TURNS, **variables)
