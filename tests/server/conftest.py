"""The server as its clients see it: over a socket, with the real small model."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

import emel
from emel.server.app import create_app
from emel.server.listening_server import new_config
from emel.server.served import ServedModels
from emel.server.settings import Settings
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from emel.engine.model import Model


@dataclass
class Server:
    """A server that runs in a thread of this process, so that tests can look at its model."""

    url: str
    models: ServedModels

    @property
    def model(self) -> Model:
        return self.models.first.model


@contextlib.contextmanager
def serving(path: Path, settings: Settings) -> Iterator[Server]:
    """A server of the small model."""
    models = ServedModels({"smollm2": lambda: emel.load(path, n_threads=2)})
    app = create_app(models, settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = uvicorn.Server(new_config(app, settings))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        found = Server(f"http://127.0.0.1:{listener.getsockname()[1]}", models)
        try:
            with httpx.Client() as client:
                for _ in range(600):
                    try:
                        if client.get(f"{found.url}/health").status_code == 200:
                            break
                    except httpx.HTTPError:
                        pass
                    time.sleep(0.05)
            yield found
        finally:
            running.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def server(smollm2_path: Path) -> Iterator[Server]:
    with serving(smollm2_path, Settings()) as running:
        yield running


GEOMETRY = Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=512)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A model with random weights."""
    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path, GEOMETRY, "Q8_0")
    return path


@pytest.fixture
def serve() -> Iterator[Callable[..., TestClient]]:
    """Serves a file from this process, without a socket."""
    opened: list[TestClient] = []

    def start(path: Path) -> TestClient:
        models = ServedModels({"tiny": lambda: emel.load(path, n_threads=1)})
        client = TestClient(create_app(models, Settings()), raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        while not models.is_ready:
            client.get("/health")
        return client

    yield start
    for each in opened:
        each.__exit__(None, None, None)
