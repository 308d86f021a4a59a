"""Chats written by another template than the file's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_chosen_chat_template_writes_the_chats(tiny_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    with emel.load(tiny_path, n_threads=1, chat_template="vicuna") as model:
        assert model.chat_template.name == "vicuna"
    with emel.load(
        tiny_path, n_threads=1, chat_template="{% for m in messages %}<{{ m.content }}>{% endfor %}"
    ) as model:
        assert model.chat_template.render(messages) == "<Hi>"
        assert model.detokenize(model.encode_chat(messages)).endswith("<Hi>")


@pytest.mark.parametrize("chosen", ["nothing", "", 5, b"{{ x }}"])
def test_a_chat_template_that_is_none_is_refused_before_anything_is_loaded(chosen: Any) -> None:
    with pytest.raises(RequestError, match=r"chat_template is .*: it must be one of 'chatml', .*, or Jinja"):
        emel.load("nowhere.gguf", chat_template=chosen)
