"""What a request asks of length, chance and probabilities, through the whole server with a tiny real model."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

PATH = "/v1/completions"
PROMPT = "The quick brown fox jumps over the lazy dog"  # 43 tokens of bytes: two blocks
N_CTX = 512


@pytest.fixture
def client(serve: Callable[..., TestClient], tiny: Path) -> TestClient:
    return serve(tiny)


def ask(client: TestClient, **fields: Any) -> Any:
    response = client.post(PATH, json={"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def text_of(client: TestClient, **fields: Any) -> str:
    text: str = ask(client, **fields)["choices"][0]["text"]
    return text


def events_of(client: TestClient, **fields: Any) -> list[Any]:
    text = client.post(PATH, json={"prompt": PROMPT, "max_tokens": 12, "stream": True, **fields}).text
    *lines, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_no_tokens_asked_is_an_empty_answer_whose_prompt_is_kept(client: TestClient) -> None:
    empty = ask(client, max_tokens=0)
    n_prompt = empty["usage"]["prompt_tokens"]
    assert empty["choices"][0]["text"] == ""
    assert empty["choices"][0]["finish_reason"] == "length"
    assert (n_prompt > 32, empty["usage"]["completion_tokens"]) == (True, 0)
    assert ask(client)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32


def test_the_end_of_the_context_ends_an_answer(client: TestClient) -> None:
    told = ask(client, prompt="a" * (N_CTX - 9), max_tokens=-1)
    assert told["choices"][0]["finish_reason"] == "length"
    assert told["usage"]["total_tokens"] == N_CTX
    refused = client.post(PATH, json={"prompt": "a" * (N_CTX + 1)})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["n_prompt_tokens"] > error["n_ctx"], error["n_ctx"]) == (True, N_CTX)


def test_a_seed_gives_the_same_again_and_is_told(client: TestClient) -> None:
    first, again, other = (ask(client, seed=seed, temperature=1) for seed in (42, 42, 43))
    assert first["choices"] == again["choices"]
    assert first["choices"][0]["text"] != other["choices"][0]["text"]
    assert first["generation_settings"]["seed"] == 42
    drawn = ask(client, temperature=1)
    seed = drawn["generation_settings"]["seed"]
    assert text_of(client, temperature=1, seed=seed) == drawn["choices"][0]["text"]


def test_temperature_0_takes_the_likeliest(client: TestClient) -> None:
    told = ask(client, temperature=0, logprobs=2)["choices"][0]["logprobs"]
    for chosen, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
        assert chosen == max(top.values())


def test_top_k_0_takes_none_away(client: TestClient) -> None:
    given = {"temperature": 3, "top_p": 1, "min_p": 0}
    texts = [text_of(client, seed=seed, top_k=0, **given) for seed in range(4)]
    assert texts == [text_of(client, seed=seed, top_k=320, **given) for seed in range(4)]
    assert len(set(texts)) == 4
    assert text_of(client, seed=1, top_k=1, **given) == text_of(client, temperature=0)


@pytest.mark.parametrize("rule", [{"regex": "[ab]{4}"}, {"logit_bias": {str(token): -100 for token in range(60, 320)}}])
def test_probabilities_of_what_may_not_come_are_finite(client: TestClient, rule: dict[str, Any]) -> None:
    response = client.post(PATH, json={"prompt": PROMPT, "max_tokens": 4, "logprobs": 20, "seed": 1, **rule})
    told = json.loads(response.text, parse_constant=pytest.fail)["choices"][0]["logprobs"]
    values = [*told["token_logprobs"], *(value for top in told["top_logprobs"] for value in top.values())]
    assert len(values) >= 20
    assert all(map(math.isfinite, values))


@pytest.mark.parametrize("key", ["", "-1", "no token", "9" * 20, "9" * 5000])
def test_a_bias_for_what_is_no_token_is_400(client: TestClient, key: str) -> None:
    response = client.post(PATH, json={"prompt": "a", "logit_bias": {key: 1}})
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("logit_bias is ")
    assert len(message) < 500


@pytest.mark.parametrize("text", ["한국어🙂é", "🙂" * 5])
def test_characters_of_several_tokens_come_whole(client: TestClient, text: str) -> None:
    events = events_of(client, choice=[text], max_tokens=60)
    parts = [each["choices"][0]["text"] for each in events]
    assert "".join(parts) == text == text_of(client, choice=[text], max_tokens=60, ignore_eos=False)
    assert not any("\ufffd" in each for each in parts)
    cut = "".join(each["choices"][0]["text"] for each in events_of(client, choice=[text], max_tokens=2))
    assert cut == text_of(client, choice=[text], max_tokens=2)


def test_every_event_but_the_last_has_a_finish_reason_of_null_and_usage_comes_once(client: TestClient) -> None:
    events = events_of(client, temperature=0, ignore_eos=True, stream_options={"include_usage": True})
    *parts, end, usage = events
    assert [each["choices"][0]["finish_reason"] for each in parts] == [None] * len(parts)
    assert end["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 12
    assert not any("usage" in each for each in (*parts, end))
