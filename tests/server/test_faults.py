"""Faults of the machine below: what clients are told, and that the server goes on."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from emel.engine.model import Model
from model.tiny_llama import write_tiny_llama
from server.conftest import GEOMETRY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

PATH = "/v1/completions"
BODY: dict[str, Any] = {"prompt": "a", "max_tokens": 3, "temperature": 0, "ignore_eos": True}


def break_tensor(path: Path, name: str) -> None:
    """Puts a NaN into a tensor of float32."""
    [offset] = [each.data_offset for each in gguf.GGUFReader(path).tensors if each.name == name]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<f", float("nan")))


def test_a_damaged_model_is_500_for_each_request_and_the_server_goes_on(
    serve: Callable[..., TestClient], tiny: Path
) -> None:
    break_tensor(tiny, "blk.0.ffn_norm.weight")
    client = serve(tiny)
    for _ in range(2):
        response = client.post(PATH, json=BODY)
        assert response.status_code == 500
        error = response.json()["error"]
        assert error["type"] == "server_error"
        assert "the logits are not finite (NaN or infinity)" in error["message"]
        assert "layer 0" in error["message"]
    *_, last, end = client.post(PATH, json={**BODY, "stream": True}).text.split("\n\n")
    assert end == ""
    assert "not finite" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert client.get("/health").status_code == 200
    assert 'emel_failures_total{kind="not_finite",model_name="tiny"} 3.0' in client.get("/metrics").text


def test_a_model_whose_file_is_removed_answers_until_it_is_unloaded(
    serve: Callable[..., TestClient], tiny: Path
) -> None:
    client = serve(tiny)
    before = client.post(PATH, json=BODY).json()["choices"]
    tiny.unlink()
    assert client.post(PATH, json=BODY).json()["choices"] == before
    assert client.post("/models/unload", json={"model": "tiny"}).status_code == 200
    for _ in range(2):
        response = client.post(PATH, json=BODY)
        assert response.status_code == 503
        assert "could not be loaded" in response.json()["error"]["message"]
        assert "tiny.gguf" in response.json()["error"]["message"]
    write_tiny_llama(tiny, GEOMETRY, "Q8_0")
    assert client.post("/models/load", json={"model": "tiny"}).status_code == 200
    assert client.post(PATH, json=BODY).json()["choices"] == before


REQUESTS = {
    "/completion": {"prompt": "a", "n_predict": 2},
    PATH: BODY,
    "/v1/embeddings": {"input": "a", "pooling": "mean"},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
}
CONSTRAINED = {"/completion": {**REQUESTS["/completion"], "regex": "[ab]"}, PATH: {**BODY, "choice": ["a"]}}


@pytest.mark.parametrize(
    ("called", "path", "body"),
    [
        *(("tokenize", path, body) for path, body in REQUESTS.items() if path != "/detokenize"),
        ("detokenize", "/detokenize", REQUESTS["/detokenize"]),
        ("embed", "/v1/embeddings", REQUESTS["/v1/embeddings"]),
        *(("tokenizer", path, body) for path, body in CONSTRAINED.items()),
        *(("submit_all", path, body) for path, body in CONSTRAINED.items()),
        *(("submit_all", path, REQUESTS[path]) for path in CONSTRAINED),
    ],
)
def test_a_model_that_is_unloaded_before_an_answer_is_503(
    serve: Callable[..., TestClient], tiny: Path, monkeypatch: pytest.MonkeyPatch, called: str, path: str, body: Any
) -> None:
    """Whatever of it the request asks for first once it is closed."""
    client = serve(tiny)
    real = vars(Model)[called]

    def closed_first(model: Model, *given: Any, **named: Any) -> Any:
        model.close()
        return real.__get__(model) if isinstance(real, property) else real(model, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Model, called, property(closed_first) if isinstance(real, property) else closed_first)
        response = client.post(path, json=body)
    assert response.status_code == 503, response.text
    assert response.headers["retry-after"] == "1"
    assert "this model is closed" in response.json()["error"]["message"]
    assert client.post("/models/unload", json={"model": "tiny"}).status_code == 200
    assert client.post(path, json=body).status_code == 200
