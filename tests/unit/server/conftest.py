from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from emel.server.app import create_app
from emel.server.served import ServedModels
from emel.server.settings import Settings
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Serve = "Callable[..., TestClient]"


@pytest.fixture
def serve() -> Iterator[Callable[..., TestClient]]:
    """Starts an application over fake models; a model alone is served as "fake"."""
    opened: list[TestClient] = []

    def start(models: FakeModel | dict[str, Any], aliases: dict[str, str] | None = None, **settings: Any) -> TestClient:
        loads = {"fake": lambda: models} if isinstance(models, FakeModel) else models
        app = create_app(ServedModels(loads, aliases), Settings(**settings))
        client = TestClient(app, raise_server_exceptions=False)
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
