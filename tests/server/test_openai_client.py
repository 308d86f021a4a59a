"""The real openai client: every answer is parsed into its types, streams as well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openai import BadRequestError, OpenAI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.conftest import Server

pytestmark = pytest.mark.model

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."
CLOCK: Any = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "The time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "maximum": 99, "minimum": 1},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models_are_listed(client: OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").owned_by == "emel"


def test_chat_answers(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=0, max_tokens=20)
    assert answer.choices[0].message.content == PARIS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.system_fingerprint
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_says_the_same(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="smollm2", messages=FRANCE, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == PARIS
    assert chunks[-1].usage is not None
    assert [each.choices[0].finish_reason for each in chunks[:-1]][-2:] == [None, "stop"]


def test_log_probabilities_are_the_same_streamed_or_not(client: OpenAI) -> None:
    given: dict[str, Any] = {
        "model": "smollm2", "messages": FRANCE, "temperature": 0, "logprobs": True, "top_logprobs": 2
    }  # fmt: skip
    whole = client.chat.completions.create(**given).choices[0].logprobs
    assert whole is not None
    assert whole.content is not None
    assert b"".join(bytes(each.bytes or b"") for each in whole.content) == PARIS.encode()
    assert all(len(each.top_logprobs) == 2 for each in whole.content)
    streamed = [
        entry
        for chunk in client.chat.completions.create(**given, stream=True)
        if chunk.choices[0].logprobs is not None
        for entry in chunk.choices[0].logprobs.content or ()
    ]
    assert [each.model_dump() for each in streamed] == [each.model_dump() for each in whole.content]


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2", prompt=["The sky is", "Once upon"], max_tokens=5, temperature=0, logprobs=1, echo=True
    )
    assert [each.text[:9] for each in answer.choices] == ["The sky i", "Once upon"]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "The sky is" + "".join(logprobs.tokens) == answer.choices[0].text
    assert logprobs.text_offset is not None
    assert logprobs.text_offset[0] == len("The sky is")
    stream = client.completions.create(model="smollm2", prompt="The sky is", max_tokens=5, temperature=0, stream=True)
    assert "The sky is" + "".join(each.choices[0].text for each in stream) == answer.choices[0].text


def test_a_schema_is_obeyed(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": "Invent a person."}],
        temperature=0,
        max_tokens=100,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
    )
    person = json.loads(answer.choices[0].message.content or "")
    assert person.keys() == {"name", "age"}
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "clock"}}])
def test_a_tool_that_must_be_called_is_called(client: OpenAI, choice: Any) -> None:
    given: dict[str, Any] = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "What time is it?"}],
        "tools": [CLOCK],
        "tool_choice": choice,
        "temperature": 0,
        "max_tokens": 60,
    }
    answer = client.chat.completions.create(**given).choices[0]
    assert answer.finish_reason == "tool_calls"
    [call] = answer.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "clock"
    assert json.loads(call.function.arguments)["zone"] in ("UTC", "CET")
    again = [
        {"role": "user", "content": "What time is it?"},
        answer.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "12:00"},
    ]
    assert (
        client.chat.completions.create(**{**given, "messages": again, "tool_choice": "none"}).choices[0].message.content
    )


@pytest.mark.parametrize("is_parallel", [False, True])
def test_streamed_calls_come_in_parts_that_the_client_joins(client: OpenAI, is_parallel: bool) -> None:
    given: dict[str, Any] = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "What time is it in both zones?"}],
        "tools": [CLOCK],
        "tool_choice": "required",
        "parallel_tool_calls": is_parallel,
        "temperature": 0,
        "max_tokens": 60,
    }
    whole = client.chat.completions.create(**given).choices[0]
    deltas = []
    with client.chat.completions.stream(**given) as stream:
        for event in stream:
            if event.type == "chunk":
                deltas += event.chunk.choices[0].delta.tool_calls or []
        joined = stream.get_final_completion().choices[0]
    assert [each.function.name for each in deltas if each.function and each.function.name] == [
        each.function.name for each in whole.message.tool_calls or ()
    ]
    assert len(deltas) > 3 * len(whole.message.tool_calls or ())
    assert [each.function.arguments for each in joined.message.tool_calls or ()] == [
        each.function.arguments for each in whole.message.tool_calls or ()
    ]
    assert joined.finish_reason == whole.finish_reason


def test_responses(client: OpenAI) -> None:
    answer = client.responses.create(
        model="smollm2", input="What is the capital of France?", temperature=0, max_output_tokens=20
    )
    assert answer.output_text == PARIS
    assert answer.status == "completed"
    cut = client.responses.create(model="smollm2", input=FRANCE, temperature=0, max_output_tokens=2)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_streamed_responses(client: OpenAI) -> None:
    with client.responses.stream(model="smollm2", input="What is the capital of France?", temperature=0) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == PARIS
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds


def test_responses_call_tools(client: OpenAI) -> None:
    tool: Any = {"type": "function", "strict": True, **CLOCK["function"]}
    given: dict[str, Any] = {
        "model": "smollm2", "input": "What time is it?", "tools": [tool], "tool_choice": "required", "temperature": 0
    }  # fmt: skip
    [call] = client.responses.create(**given).output
    assert call.type == "function_call"
    assert call.name == "clock"
    with client.responses.stream(**given) as stream:
        list(stream)
        [streamed] = stream.get_final_response().output
    assert streamed.type == "function_call"
    assert streamed.arguments == call.arguments


def test_a_client_error_is_the_clients_type(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="temperature is 1000"):
        client.chat.completions.create(model="smollm2", messages=FRANCE, temperature=1000)
    with pytest.raises(BadRequestError, match="its file names no pooling for embeddings: give one of 'mean', 'cls'"):
        client.embeddings.create(model="smollm2", input="x")


def test_models_that_write_text_have_embeddings_pooled_as_asked(client: OpenAI) -> None:
    one, other = client.embeddings.create(
        model="smollm2", input=["x", "y"], extra_body={"pooling": "last"}, encoding_format="float"
    ).data
    assert len(one.embedding) == len(other.embedding) == 576
    assert one.embedding != other.embedding
    with pytest.raises(BadRequestError, match="pooling"):
        client.embeddings.create(model="smollm2", input="x", extra_body={"pooling": "max"})


def test_tokens_of_a_response_s_request_are_counted(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="smollm2", input=FRANCE)
    answered = client.responses.create(model="smollm2", input=FRANCE, max_output_tokens=1)
    assert answered.usage is not None
    assert counted.input_tokens == answered.usage.input_tokens
