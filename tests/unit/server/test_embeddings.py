"""Embeddings are computed batch by batch, for those who are still there."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from emel.engine.failures import request_failures
from emel.errors import RequestError
from emel.io.errors import SourceError
from emel.server.app import create_app
from emel.server.embeddings import _batches
from emel.server.served import ServedModels
from emel.server.settings import Settings
from emel.text.errors import NotFiniteError
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.testclient import TestClient

PATH = "/v1/embeddings"


class WaitingModel(FakeModel):
    """Embeds when it is let."""

    def __init__(self) -> None:
        super().__init__("x")
        self.may_embed, self.has_begun = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def embed(self, texts: Sequence[Sequence[int]], pooling: str | None = None) -> Any:
        self.sizes.append(len(texts))
        self.has_begun.set()
        assert self.may_embed.wait(20)
        return super().embed(texts, pooling)


def test_batches_are_what_the_engine_computes_together() -> None:
    assert list(_batches([[1]] * 130, 1000)) == [slice(0, 64), slice(64, 128), slice(128, 130)]
    assert list(_batches([[1] * 6, [1] * 4, [1], [1] * 20, [1]], 10)) == [
        slice(0, 2),
        slice(2, 3),
        slice(3, 4),
        slice(4, 5),
    ]


def test_texts_are_computed_in_several_batches_and_told_in_order(serve: Callable[..., TestClient]) -> None:
    model = WaitingModel()
    model.may_embed.set()
    told = serve(model).post(PATH, json={"input": ["ab"] * 150}).json()
    assert [each["index"] for each in told["data"]] == list(range(150))
    assert model.sizes == [64, 64, 22]
    assert told["usage"]["prompt_tokens"] == sum(len(model.tokenize("ab")) for _ in range(150))


def test_a_client_that_goes_away_ends_its_embeddings_with_the_batch_that_is_computed() -> None:
    model = WaitingModel()
    app = create_app(ServedModels({"fake": lambda: cast("Any", model)}), Settings())
    body = b'{"input": ["a"' + b', "a"' * 199 + b"]}"
    sent = list[Any]()

    async def run() -> None:
        is_gone = asyncio.Event()
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            for message in given:
                return message
            await is_gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": []}
        async with app.router.lifespan_context(app):
            async with asyncio.timeout(10):
                while not app.state.models.is_ready:
                    await asyncio.sleep(0.001)
            answering = asyncio.ensure_future(app(scope, receive, send))
            assert await asyncio.to_thread(model.has_begun.wait, 10)
            is_gone.set()
            await asyncio.wait_for(answering, 10)
            assert app.state.n_embedding == 0
            model.may_embed.set()
            await asyncio.sleep(0.05)

    asyncio.run(run())
    assert model.sizes == [64]
    assert sent[0]["status"] == 499


def test_embeddings_that_wait_hold_up_nobody_else_and_too_many_are_told_so(serve: Callable[..., TestClient]) -> None:
    model = WaitingModel()
    client = serve(model, max_waiting=20)
    with ThreadPoolExecutor(21) as asking:
        waiting = [asking.submit(client.post, PATH, json={"input": "a"}) for _ in range(21)]
        assert model.has_begun.wait(20)
        app: Any = client.app
        for _ in range(2000):
            if app.state.n_embedding == 21:
                break
            threading.Event().wait(0.005)
        refused = client.post(PATH, json={"input": "a"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        chat = {"messages": [{"role": "user", "content": "x"}]}
        assert client.post("/v1/chat/completions", json=chat).status_code == 200
        assert client.post("/tokenize", json={"content": "x"}).status_code == 200
        model.may_embed.set()
        assert {each.result().status_code for each in waiting} == {200}


def test_embeddings_take_no_longer_than_a_request_may(serve: Callable[..., TestClient]) -> None:
    model = WaitingModel()
    response = serve(model, request_timeout=0.05).post(PATH, json={"input": "a"})
    model.may_embed.set()
    assert response.status_code == 504
    assert "within 0.05 seconds (--timeout)" in response.json()["error"]["message"]


@pytest.mark.parametrize("dimensions", [15, 17])
def test_dimensions_that_are_not_the_model_s_are_refused(serve: Callable[..., TestClient], dimensions: int) -> None:
    client = serve(FakeModel("x"))
    assert client.post(PATH, json={"input": "a", "dimensions": 16}).status_code == 200
    response = client.post(PATH, json={"input": ["a"] * 100, "dimensions": dimensions})
    assert response.status_code == 400
    assert f"dimensions is {dimensions}: this model has 16" in response.json()["error"]["message"]


class FailingModel(FakeModel):
    """Embeds nothing, for a reason."""

    def __init__(self, error: Exception) -> None:
        super().__init__("x")
        self.error = error

    def embed(self, texts: Sequence[Sequence[int]], pooling: str | None = None) -> Any:
        with request_failures():
            raise self.error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SourceError("'x' was written to"), 500),
        (NotFiniteError("the embedding is not finite"), 500),
        (MemoryError(), 503),
        (RequestError("this model names no pooling"), 400),
    ],
)
def test_only_what_is_the_client_s_fault_is_told_as_that(
    serve: Callable[..., TestClient], error: Exception, status: int
) -> None:
    response = serve(FailingModel(error)).post(PATH, json={"input": "a"})
    assert response.status_code == status
    assert str(error) in response.json()["error"]["message"]
