"""What goes on inside, told as it goes on; and the page that shows it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from emel.server.page_files import NAMES
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient


def test_machines_are_told_with_their_tables(serve: Callable[..., TestClient]) -> None:
    machines = {each["name"]: each for each in serve(FakeModel("x")).get("/machines").json()}
    generator = machines["GeneratorMachine"]
    assert generator["initial"] == "QUEUED"
    assert {"STOPPED", "LENGTH", "CANCELLED", "FAILED"} == set(generator["terminal"])
    assert all(row["source"] in generator["states"] for row in generator["rows"])


@pytest.mark.parametrize("name", NAMES)
def test_the_page_and_its_files_need_no_key_and_let_nothing_else_in(
    serve: Callable[..., TestClient], name: str
) -> None:
    client = serve(FakeModel("x"), api_keys=("k",))
    response = client.get("/" if name == "index.html" else f"/page/{name}")
    assert response.status_code == 200
    assert "default-src 'self'" in response.headers["content-security-policy"]


@pytest.mark.parametrize("name", ["other.js", "..%2f..%2fapp.py", "%2e%2e"])
def test_the_page_has_no_other_files(serve: Callable[..., TestClient], name: str) -> None:
    assert serve(FakeModel("x")).get(f"/page/{name}").status_code == 404


def test_transitions_are_not_told_to_everybody(serve: Callable[..., TestClient]) -> None:
    assert serve(FakeModel("x"), host="0.0.0.0").get("/trace").status_code == 403


def test_streams_of_what_happens_end_when_the_server_does(serve: Callable[..., TestClient]) -> None:
    client = serve(FakeModel("x"))
    state = cast("Any", client.app).state
    threading.Timer(0.1, setattr, (state, "is_ending", True)).start()
    for path in ("/live", "/trace"):
        assert client.get(path).status_code == 200
