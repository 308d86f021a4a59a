from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from emel.errors import RequestError
from emel.text.chat import ChatTemplate

if TYPE_CHECKING:
    import emel

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


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


def test_what_is_wrong_with_a_conversation_is_told_when_it_is_made(chatty: emel.Model) -> None:
    with pytest.raises(RequestError, match="did you mean top_k"):
        chatty.session(topk=1)
    with pytest.raises(RequestError, match="top_k is"):
        chatty.session(top_k="many")
    with pytest.raises(RequestError, match="system is 5: it must be a str, or None"):
        chatty.session(5)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="cannot set 'messages'"):
        chatty.session(chat_template_kwargs={"messages": []})


def test_variables_of_the_template_are_for_every_chat(chatty: emel.Model) -> None:
    chatty._template = ChatTemplate("{{ messages[-1].content }}{% if shout %}!!!!!!!!{% endif %}", bos="", eos="")
    messages = [{"role": "user", "content": "hello"}]
    loud: dict[str, Any] = {"chat_template_kwargs": {"shout": True, "self": 1, "tokenizer": 2}}
    n_plain = chatty.chat(messages, **GREEDY).n_prompt_tokens
    n_loud = chatty.chat(messages, **loud, **GREEDY).n_prompt_tokens
    assert n_loud > n_plain
    streamed = list(chatty.chat(messages, stream=True, **loud, **GREEDY))[-1].completion
    assert streamed is not None
    assert streamed.n_prompt_tokens == n_loud
    assert asyncio.run(chatty.achat(messages, **loud, **GREEDY)).n_prompt_tokens == n_loud
    assert [each.n_prompt_tokens for each in chatty.chat_many([messages] * 2, **loud, **GREEDY)] == [n_loud] * 2
    conversation = chatty.session(**loud, **GREEDY)
    assert conversation.send("hello").n_prompt_tokens == n_loud
    assert chatty.session(**GREEDY).send("hello", **loud).n_prompt_tokens == n_loud
    with pytest.raises(RequestError, match=r"chat_template_kwargs is 5"):
        chatty.chat(messages, chat_template_kwargs=5)
    with pytest.raises(RequestError, match="stream is 'no': it must be True or False"):
        chatty.chat(messages, stream="no")  # type: ignore[call-overload]
