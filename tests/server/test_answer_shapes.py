"""Answers of a real model have the shapes that the OpenAPI document tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from emel.server.openapi import ENDPOINTS

if TYPE_CHECKING:
    from server.conftest import Server

ANSWERS = {each.path: each for each in ENDPOINTS}
HI = [{"role": "user", "content": "Hi"}]
FUNCTION = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}}
TOOL = {"type": "function", "function": FUNCTION}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 3, "logprobs": True, "top_logprobs": 2, "n": 2}),
    ("/v1/chat/completions", {"messages": HI, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 3, "transcript": True}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2, "echo": True}),
    ("/completion", {"prompt": "a", "n_predict": 3, "n_probs": 2, "return_tokens": True}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 3}),
    ("/v1/messages", {"messages": HI, "max_tokens": 3}),
    ("/v1/messages/count_tokens", {"messages": HI}),
    ("/tokenize", {"content": "aé", "with_pieces": True}),
    ("/detokenize", {"tokens": [65, 66]}),
    ("/apply-template", {"messages": HI}),
    ("/models/load", {"model": "smollm2"}),
]
PATHS = ("/health", "/v1/models", "/v1/models/smollm2", "/props", "/slots", "/machines")


@pytest.mark.model
def test_every_answer_has_its_shape(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        answers = [(path, client.post(path, json=body)) for path, body in BODIES]
        answers += [(path, client.get(path)) for path in PATHS]
    for path, response in answers:
        assert response.status_code == 200, response.text
        endpoint = ANSWERS[path.replace("/smollm2", "/{name}")]
        assert endpoint.answer is not None
        told = response.json()
        for each in told if endpoint.is_list else [told]:
            endpoint.answer.model_validate(each)


@pytest.mark.model
def test_progress_is_that_of_the_prompt(server: Server) -> None:
    body = {"prompt": "fox " * 1500, "n_predict": 2, "stream": True, "return_progress": True, "cache_prompt": False}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        lines = client.post("/completion", json=body).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line]
    told = [each["prompt_progress"] for each in events if "prompt_progress" in each]
    assert [each["processed"] for each in told] == sorted(each["processed"] for each in told)
    assert {each["total"] for each in told} == {events[-1]["tokens_evaluated"]}
    assert told[-1]["processed"] == told[-1]["total"] > 1500
    assert told[-1]["cache"] == 0
