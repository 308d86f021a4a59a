"""Bodies that are in order but for one place: whatever is there, the answer is no failure of the server."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emel.engine.grammar_check import CHECKER
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.testclient import TestClient

PARAMETERS = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": "a", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "t"},
                {"role": "user", "content": "u"},
            ],
            "tools": [{"type": "function", "function": {"name": "clock", "parameters": PARAMETERS}}],
            "tool_choice": {"type": "function", "function": {"name": "clock"}},
            "temperature": 0.5,
            "seed": 1,
            "stop": ["x"],
            "logit_bias": {"5": -100},
            "logprobs": True,
            "top_logprobs": 2,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "u"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}},
            "n": 2,
            "samplers": ["top_k", "temperature"],
            "dry_sequence_breakers": ["\n"],
        },
    ),
    ("/v1/completions", {"prompt": ["a", "b"], "echo": True, "logprobs": 1, "structured_outputs": {"regex": "a"}}),
    ("/completion", {"prompt": ["a", 5], "n_predict": 3, "n_probs": 1, "return_tokens": True, "speculate": False}),
    (
        "/v1/responses",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
                {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "noon"},
                {"type": "reasoning", "summary": []},
            ],
            "instructions": "i",
            "tools": [{"type": "function", "name": "clock", "parameters": PARAMETERS, "strict": True}],
            "tool_choice": {"type": "function", "name": "clock"},
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "text"}},
            "metadata": {"a": "b"},
        },
    ),
    (
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 5,
            "system": [{"type": "text", "text": "s"}],
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "clock", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "noon"}]},
            ],
            "tools": [{"name": "clock", "description": "d", "input_schema": PARAMETERS}],
            "tool_choice": {"type": "tool", "name": "clock"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "stop_sequences": ["x"],
        },
    ),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 16}),
    ("/tokenize", {"content": "a", "add_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2]}),
]  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 1e308, 0.5, "", "a", "\0", "\U0010ffff", "<|im_end|>",
    "{{ x }}", [], {}, [[]], [None], {"": None}, ["a", 1], {"type": None}, {"type": "text"}, {"type": "function"},
    {"role": "tool"},
]  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*way, key)
        yield from places(each, (*way, key))


def changed(body: dict[str, Any], way: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value there; without it for "remove"."""
    made = copy.deepcopy(body)
    at: Any = made
    for key in way[:-1]:
        at = at[key]
    if value == "remove":
        del at[way[-1]]
    else:
        at[way[-1]] = value
    return made


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModel]:
    yield FakeModel("Hi", "!")
    CHECKER.close()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_odd_value_is_never_a_failure_of_the_server(
    serve: Callable[..., TestClient], model: FakeModel, data: st.DataObject
) -> None:
    client = _client(serve, model)
    path, body = data.draw(st.sampled_from(BODIES))
    way = data.draw(st.sampled_from(list(places(body))))
    body = changed(body, way, data.draw(st.sampled_from(["remove", *ODD])))
    if path.startswith("/v1") and path != "/v1/embeddings":
        body["stream"] = data.draw(st.booleans())
    response = client.post(path, content=json.dumps(body).encode())
    assert response.status_code in {200, 400, 404, 429}, response.text
    assert response.status_code != 200 or not body.get("stream") or '"error":{' not in response.text
    if response.status_code != 200:
        assert len(response.json()["error"]["message"]) < 700


_clients: dict[int, TestClient] = {}


def _client(serve: Callable[..., TestClient], model: FakeModel) -> TestClient:
    """One for all examples."""
    return _clients.setdefault(id(model), serve(model))
