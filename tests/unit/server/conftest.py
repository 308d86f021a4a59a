from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from emel.server.app import create_app
from emel.server.openapi import ENDPOINTS
from emel.server.served import ServedModels
from emel.server.settings import Settings
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWERS = {each.path: each for each in ENDPOINTS}
TWINS = {"/chat/completions", "/completions", "/embeddings", "/models"}


def hold_to_document(response: Any) -> None:
    """Every answer of every test is one of those that the OpenAPI document tells."""
    if response.status_code != 200 or not response.headers["content-type"].startswith("application/json"):
        return
    path = response.request.url.path
    if path in TWINS:
        path = f"/v1{path}"
    elif path.startswith("/v1/models/"):
        path = "/v1/models/{name}"
    endpoint = ANSWERS.get(path)
    if endpoint is not None and endpoint.answer is not None:
        response.read()
        told = response.json()
        for each in told if endpoint.is_list else [told]:
            endpoint.answer.model_validate(each)


@pytest.fixture
def serve() -> Iterator[Callable[..., TestClient]]:
    """Starts an application over fake models; a model alone is served as "fake"."""
    opened: list[TestClient] = []

    def start(models: FakeModel | dict[str, Any], aliases: dict[str, str] | None = None, **settings: Any) -> TestClient:
        loads: dict[str, Any] = {"fake": lambda: models} if isinstance(models, FakeModel) else models
        app = create_app(ServedModels(loads, aliases), Settings(**settings))
        client = TestClient(app, raise_server_exceptions=False)
        client.event_hooks = {"response": [hold_to_document]}
        client.__enter__()
        opened.append(client)
        for _ in range(200):
            if app.state.models.is_ready:
                break
            client.get("/health")
        return client

    yield start
    for each in opened:
        each.__exit__(None, None, None)
