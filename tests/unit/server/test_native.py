"""/completion and /slots, in llama.cpp's words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from emel.engine.wave import LaneView
from emel.server.native import _stop_type
from unit.server.fake_model import FakeModel, completion

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

PATH = "/completion"


def test_an_answer_has_the_fields_of_llama_cpp(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("Hi", "!\n")
    told = serve(model).post(PATH, json={"prompt": "ab", "n_predict": 5, "return_tokens": True}).json()
    assert (told["content"], told["tokens"], told["stop"]) == ("Hi!\n", [0, 1], True)
    assert (told["stop_type"], told["stopping_word"], told["truncated"], told["has_new_line"]) == (
        "eos",
        "",
        False,
        True,
    )
    assert (told["tokens_predicted"], told["tokens_evaluated"], told["tokens_cached"]) == (2, 2, 0)
    assert told["prompt"] == "ab"
    assert told["generation_settings"]["seed"] == 7
    assert model.requests[0].options["max_tokens"] == 5


def test_a_stream_ends_with_the_whole_and_without_done(serve: Callable[..., TestClient]) -> None:
    text = serve(FakeModel("Hi", "!")).post(PATH, json={"prompt": "ab", "stream": True}).text
    *parts, last = [json.loads(line[6:]) for line in text.splitlines() if line]
    assert [each["content"] for each in parts] == ["Hi", "!"]
    assert [each["stop"] for each in parts] == [False, False]
    assert [each["tokens_predicted"] for each in parts] == [1, 2]
    assert (last["content"], last["stop"], last["stop_type"]) == ("", True, "eos")
    assert last["timings"]["predicted_n"] == 2


def test_texts_and_ids_may_stand_beside_each_other(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model)
    expected = [*model.tokenize("ab"), 7, *model.tokenize("c", add_special=False)]
    assert client.post(PATH, json={"prompt": ["ab", 7, "c"]}).status_code == 200
    assert model.requests[0].prompt_ids == expected


@pytest.mark.parametrize(
    ("reason", "stop", "expected"),
    [("stop", None, "eos"), ("stop", "END", "word"), ("length", None, "limit")],
)
def test_why_it_stopped(reason: str, stop: str | None, expected: str) -> None:
    assert _stop_type(replace(completion("x", reason), stop=stop)) == expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "several": ({"prompt": ["a", "b"]}, "several prompts are not supported here"),
    "nothing": ({"prompt": ""}, "the prompt has no tokens"),
    "post_sampling_probs": ({"prompt": "a", "post_sampling_probs": True}, "post_sampling_probs is not supported"),
    "n": ({"prompt": "a", "n": 2}, "/completion gives one answer"),
    "n_probs": ({"prompt": "a", "n_probs": 21}, "n_probs is 21: it must be at most 20"),
    "id": ({"prompt": [100000]}, "100000"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_400(serve: Callable[..., TestClient], name: str) -> None:
    body, reason = REFUSED[name]
    response = serve(FakeModel("x")).post(PATH, json=body)
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"]


def test_slots_are_the_lanes_and_who_has_them(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model)
    model.wave.view.n_lanes = 2
    model.wave.view.lanes = (LaneView(5, "decoding", 10, 12, 3, 12),)
    busy, free = client.get("/slots").json()
    assert (busy["id"], busy["is_processing"], busy["id_task"], busy["n_prompt_tokens_processed"]) == (0, True, 5, 10)
    assert busy["next_token"] == [{"has_next_token": True, "n_decoded": 3, "n_remain": 4096 - 13}]
    assert free == {"id": 1, "n_ctx": 4096, "is_processing": False}
    assert client.get("/slots?fail_on_no_slot=1").status_code == 200
    model.wave.view.lanes *= 2
    refused = client.get("/slots?fail_on_no_slot=1")
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "no slot available")
    assert client.get("/slots").status_code == 200


def test_props_and_models_tell_what_llama_cpp_tells(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    props = client.get("/props").json()
    assert props["model_alias"] == "fake"
    assert props["modalities"] == {"vision": False, "audio": False}
    assert (props["bos_token"], props["eos_token"] != "") == ("", True)
    meta = client.get("/v1/models").json()["data"][0]["meta"]
    assert (meta["vocab_type"], meta["n_params"], meta["size"]) == (2, 500, 1000)
