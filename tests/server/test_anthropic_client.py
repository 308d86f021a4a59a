"""The real anthropic client against /v1/messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from anthropic import Anthropic, BadRequestError
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.conftest import Server

pytestmark = pytest.mark.model

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."
CLOCK: Any = {
    "name": "clock",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"enum": ["UTC"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def given(**more: Any) -> dict[str, Any]:
    return {"model": "smollm2", "messages": FRANCE, "max_tokens": 20, "extra_body": {"temperature": 0}, **more}


def test_messages(client: Anthropic) -> None:
    message = client.messages.create(**given())
    assert message.content[0].type == "text"
    assert message.content[0].text == PARIS
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0
    assert client.messages.create(**given(max_tokens=2)).stop_reason == "max_tokens"


def test_a_stop_sequence_is_named(client: Anthropic) -> None:
    message = client.messages.create(**given(stop_sequences=[" Paris"]))
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " Paris")
    assert message.content[0].type == "text"
    assert message.content[0].text == "The capital of France is"


def test_streamed_messages(client: Anthropic) -> None:
    with client.messages.stream(**given()) as stream:
        assert "".join(stream.text_stream) == PARIS
        assert stream.get_final_message().stop_reason == "end_turn"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "clock"}])
def test_tools(client: Anthropic, choice: Any) -> None:
    wanted = given(tools=[CLOCK], tool_choice=choice, max_tokens=60)
    message = client.messages.create(**wanted)
    assert message.stop_reason == "tool_use"
    [block] = message.content
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("clock", {"zone": "UTC"})
    with client.messages.stream(**wanted) as stream:
        [streamed] = stream.get_final_message().content
    assert streamed.type == "tool_use"
    assert streamed.input == block.input
    told = {"type": "tool_result", "tool_use_id": block.id, "content": "12:00"}
    history = [*FRANCE, {"role": "assistant", "content": [block.model_dump()]}, {"role": "user", "content": [told]}]
    assert client.messages.create(**given(messages=history, tools=[CLOCK])).content


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="smollm2", messages=FRANCE, system="Be brief.")
    used = client.messages.create(**given(system="Be brief.")).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_errors_have_their_shape(client: Anthropic) -> None:
    with pytest.raises(BadRequestError, match=r"messages\[0\].role is 'cat'"):
        client.messages.create(**given(messages=[{"role": "cat", "content": "x"}]))


class City(BaseModel):
    name: str
    size: int


def test_the_form_of_an_answer_is_obeyed_and_parsed(client: Anthropic) -> None:
    parsed = client.messages.parse(**{**given(), "max_tokens": 120}, output_format=City).parsed_output
    assert isinstance(parsed, City)
