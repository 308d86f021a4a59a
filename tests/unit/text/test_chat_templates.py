"""The named templates against the formats as their makers show them."""

from __future__ import annotations

from typing import Any

import pytest

from emel.text.chat import ChatTemplate, ChatTemplateError, load_chat_template
from emel.text.chat_templates import SIGNS, TEMPLATES
from emel.text.tokenizer import load_tokenizer
from unit.text.tiny_vocabulary import metadata, string_array, tiny_metadata

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}

WRITTEN = {
    "chatml": (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "llama2": "<s>[INST] Hi [/INST] Hello </s><s>[INST] Bye [/INST]",
    "llama3": (
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        "Hello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "gemma": (
        "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    ),
    "phi3": "<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n",
    "zephyr": "<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n<|assistant|>\n",
    "mistral": "[INST] Hi [/INST] Hello</s>[INST] Bye [/INST]",
    "vicuna": "USER: Hi\nASSISTANT: Hello</s>\nUSER: Bye\nASSISTANT:",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_named_templates_write_the_format(name: str) -> None:
    assert ChatTemplate(TEMPLATES[name], "<s>", "</s>").render(TALK) == WRITTEN[name]


@pytest.mark.parametrize("name", TEMPLATES)
def test_named_templates_show_a_system_message_or_refuse_it(name: str) -> None:
    template = ChatTemplate(TEMPLATES[name], "<s>", "</s>")
    if name in ("gemma", "mistral"):
        with pytest.raises(ChatTemplateError, match="no system message"):
            template.render([SYSTEM, *TALK])
    else:
        assert template.render([SYSTEM, *TALK]).count("Be brief.") == 1


@pytest.mark.parametrize(("name", "markers"), SIGNS)
def test_a_file_without_template_gets_that_of_its_markers(name: str, markers: tuple[str, ...]) -> None:
    found = metadata(model="gpt2", tokens=string_array(["a", *markers]))
    chosen = load_chat_template(found, load_tokenizer(found))
    assert (chosen.name, chosen.source) == (name, TEMPLATES[name])


def test_a_template_may_be_chosen_by_name_or_given() -> None:
    found = tiny_metadata(chat_template="of the file")
    tokenizer = load_tokenizer(found)
    assert load_chat_template(found, tokenizer, "phi3").source == TEMPLATES["phi3"]
    assert load_chat_template(found, tokenizer, "{{ messages[0].content }}").render(TALK) == "Hi"
    with pytest.raises(ChatTemplateError, match="there is no chat template 'phi': allowed are chatml, llama2, "):
        load_chat_template(found, tokenizer, "phi")
