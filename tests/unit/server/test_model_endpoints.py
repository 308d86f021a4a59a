"""Models by name: listed, loaded, unloaded, failed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from emel.engine.results import Chunk
from emel.errors import ModelLoadError
from emel.text.sampler import TokenLogprobs
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


def test_models_are_listed_with_what_they_are(serve: Callable[..., TestClient]) -> None:
    client = serve({"a": lambda: FakeModel("x"), "b/c": lambda: FakeModel("y")})
    listed = client.get("/v1/models").json()
    assert [each["id"] for each in listed["data"]] == ["a", "b/c"]
    assert listed["data"][0]["meta"]["n_ctx"] == 4096
    assert client.get("/v1/models/b/c").json() == listed["data"][1]
    assert client.get("/v1/models/d").status_code == 404


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/v1/v1/messages", "the client adds /v1 by itself, so leave it out of the base URL"),
        ("/api/chat", "ollama's protocol is not spoken here; OpenAI's is, at /v1"),
        ("/flurb", "/openapi.json lists the endpoints"),
    ],
)
def test_a_path_that_is_not_there_is_answered_with_where_to_look(
    serve: Callable[..., TestClient], path: str, advice: str
) -> None:
    answer = serve({"a": lambda: FakeModel("x")}).post(path, json={})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == f"Not Found: POST '{path}'; {advice}"


def test_a_request_gets_the_model_it_names(serve: Callable[..., TestClient]) -> None:
    client = serve({"a": lambda: FakeModel("from a"), "b": lambda: FakeModel("from b")}, aliases={"gpt": "b"})

    def answer(**fields: str) -> str:
        content: str = client.post(PATH, json={**CHAT, **fields}).json()["choices"][0]["message"]["content"]
        return content

    assert [answer(), answer(model="b"), answer(model="gpt")] == ["from a", "from b", "from b"]
    missing = client.post(PATH, json={**CHAT, "model": "c"})
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "there is no model 'c': served are a, b, gpt"


def test_a_server_of_one_model_takes_any_name(serve: Callable[..., TestClient]) -> None:
    assert serve(FakeModel("x")).post(PATH, json={**CHAT, "model": "gpt-4o"}).json()["model"] == "fake"


def test_health_is_503_while_a_model_is_loaded(serve: Callable[..., TestClient]) -> None:
    may_load = threading.Event()

    def load() -> FakeModel:
        may_load.wait(10)
        return FakeModel("x")

    client = serve({"slow": load})
    health = client.get("/health")
    assert (health.status_code, health.json()["error"]["message"]) == (503, "Loading model")
    assert client.post(PATH, json=CHAT).status_code == 503
    may_load.set()
    for _ in range(500):
        if client.get("/health").status_code == 200:
            break
        time.sleep(0.01)
    assert client.post(PATH, json=CHAT).status_code == 200


def test_a_model_that_cannot_be_loaded_says_why(serve: Callable[..., TestClient]) -> None:
    def load() -> FakeModel:
        raise ModelLoadError("the file is half there")

    client = serve({"bad": load})
    assert "the file is half there" in client.get("/health").json()["error"]["message"]
    response = client.post(PATH, json=CHAT)
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "the model 'bad' could not be loaded: the file is half there"


def test_a_model_is_unloaded_and_comes_back_when_it_is_asked_for(serve: Callable[..., TestClient]) -> None:
    loaded: list[FakeModel] = []

    def load() -> FakeModel:
        loaded.append(FakeModel("x"))
        return loaded[-1]

    client = serve({"a": load})
    assert client.post("/models/unload", json={"model": "a"}).json()["model"]["status"] == "unloaded"
    assert loaded[0].is_closed
    assert client.post(PATH, json=CHAT).status_code == 200
    assert len(loaded) == 2
    assert client.post("/models/load", json={"model": "a"}).json()["model"]["status"] == "ready"
    assert client.post("/models/load", json={"model": 1}).status_code == 400


@pytest.mark.parametrize("path", ["/props", "/slots", "/v1/models", "/metrics"])
def test_a_look_loads_no_model(serve: Callable[..., TestClient], path: str) -> None:
    loaded: list[FakeModel] = []

    def load() -> FakeModel:
        loaded.append(FakeModel("x"))
        return loaded[-1]

    client = serve({"a": load})
    client.post("/models/unload", json={"model": "a"})
    response = client.get(path)
    assert len(loaded) == 1
    if path in ("/props", "/slots"):
        assert response.status_code == 503
        message = response.json()["error"]["message"]
        assert message == "the model 'a' is not loaded: POST /models/load, or a prompt for it, loads it"


def test_requests_of_the_same_unloaded_model_wait_for_one_load(serve: Callable[..., TestClient]) -> None:
    loads: list[FakeModel] = []

    def load() -> FakeModel:
        time.sleep(0.3 if loads else 0)
        loads.append(FakeModel("x"))
        return loads[-1]

    client = serve({"a": load})
    client.post("/models/unload", json={"model": "a"})
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(client.post(PATH, json=CHAT).status_code)

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert statuses == [200] * 4
    assert len(loads) == 2


def test_a_model_that_nobody_uses_is_unloaded(serve: Callable[..., TestClient]) -> None:
    model = FakeModel("x")
    client = serve(model, idle_unload_seconds=0.05)
    for _ in range(500):
        client.get("/health")
        if model.is_closed:
            break
        time.sleep(0.01)
    assert model.is_closed


def test_props_tell_defaults_and_template(serve: Callable[..., TestClient]) -> None:
    props = serve(FakeModel("x")).get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["default_generation_settings"]["params"]["temperature"] == 0.8
    assert "<|im_start|>" in props["chat_template"]
    assert props["total_slots"] == 8


@pytest.mark.parametrize("n_words", [0, 1, 4096, 9000])
def test_all_tokens_of_a_long_text_are_told(serve: Callable[..., TestClient], n_words: int) -> None:
    client, model, text = serve(FakeModel()), FakeModel(), "a " * n_words
    tokens = client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert tokens == model.tokenize(text, add_special=False)
    pieces = client.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    assert [each["id"] for each in pieces] == tokens
    assert "".join(each["piece"] for each in pieces) == text


def test_text_and_tokens(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    tokens = client.post("/tokenize", json={"content": "hé"}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"content": "hé"}
    pieces = client.post("/tokenize", json={"content": "hé", "with_pieces": True}).json()["tokens"]
    assert [each["piece"] for each in pieces] == ["h", [0xC3], [0xA9]]
    assert client.post("/detokenize", json={"tokens": ["a"]}).status_code == 400


def test_aliases_are_told_and_lead_to_their_model(serve: Callable[..., TestClient]) -> None:
    loads = {"a": lambda: FakeModel("x"), "b": lambda: FakeModel("y")}
    client = serve(loads, aliases={"gpt": "b", "org/gpt": "b"})
    listed = client.get("/v1/models").json()["data"]
    assert [each["aliases"] for each in listed] == [[], ["gpt", "org/gpt"]]
    for name in ("b", "gpt", "org/gpt"):
        assert client.get(f"/v1/models/{name}").json() == listed[1]


@pytest.mark.parametrize("tokens", [[1, -1], [2**40], [2**70], [10**30]])
@pytest.mark.parametrize(
    ("path", "field"),
    [("/detokenize", "tokens"), ("/v1/completions", "prompt"), ("/completion", "prompt"), ("/v1/embeddings", "input")],
)
def test_tokens_that_are_none_are_told_with_their_field(
    serve: Callable[..., TestClient], path: str, field: str, tokens: list[int]
) -> None:
    response = serve(FakeModel("x")).post(path, json={field: tokens})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == field
    assert error["message"].startswith(f"{field}: token ")


@pytest.mark.parametrize(
    ("field", "value"),
    [("stop", [""]), ("priority", 101), ("max_tokens", 2**70), ("temperature", 1e9), ("top_k", 2**70)],
)
def test_the_field_that_is_wrong_is_named(serve: Callable[..., TestClient], field: str, value: Any) -> None:
    response = serve(FakeModel("x")).post(PATH, json={**CHAT, field: value})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == field


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/completion", {"prompt": "a", "n_probs": 1}),
        ("/v1/completions", {"prompt": "a", "logprobs": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "logprobs": True}),
    ],
)
def test_a_stream_is_told_to_its_end_when_its_model_is_unloaded_meanwhile(
    serve: Callable[..., TestClient], path: str, asked: dict[str, Any]
) -> None:
    model = FakeModel()
    client = serve({"fake": lambda: model})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.post, path, json={**asked, "stream": True})
        assert model.submitted.wait(10)
        assert client.post("/models/unload", json={"model": "fake"}).status_code == 200
        [request] = model.requests
        request.listener.on_chunk(Chunk("b", (1,), logprobs=[TokenLogprobs(1, -0.5, ((1, -0.5),))]))
        request.say("c")
        told = answer.result(20).text
    assert "error" not in told
    assert '"b"' in told
    assert '"c"' in told
