from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emel.errors import RequestError
from emel.text.chat import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator

    import emel

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}a: "
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


@pytest.fixture
def chatty(model: emel.Model) -> Iterator[emel.Model]:
    model._template = ChatTemplate(TEMPLATE, bos="", eos="")
    yield model
    model._template = None


def test_turns_are_those_of_the_whole_chat(chatty: emel.Model) -> None:
    conversation = chatty.session("be kind", **GREEDY)
    first = conversation.send("hello there, all")
    second = conversation.send("m")
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hello there, all"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "m"},
    ]
    assert chatty.chat(messages, **GREEDY).text == second.text
    assert conversation.messages == [*messages, {"role": "assistant", "content": second.text}]
    assert second.n_cached_tokens >= 32  # what the first turn computed


def test_streamed_turn_is_remembered_as_far_as_it_was_read(chatty: emel.Model) -> None:
    conversation = chatty.session(**GREEDY)
    assert "".join(chunk.text for chunk in conversation.stream("hello")) == conversation.messages[1]["content"]
    turn = conversation.stream("again", max_tokens=20)
    read = next(turn).text
    turn.close()
    assert conversation.messages[2:] == [
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": read},
    ]


def test_refused_turn_is_not_remembered(chatty: emel.Model) -> None:
    conversation = chatty.session()
    with pytest.raises(RequestError, match="top_k is -1"):
        conversation.send("hello", top_k=-1)
    with pytest.raises(RequestError, match="the context holds"):
        list(conversation.stream("x" * 200))
    assert conversation.messages == []
