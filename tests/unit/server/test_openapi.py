"""The OpenAPI document, and requests that are made from it: none is answered with a failure of the server, nor with
anything that the document does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from emel.engine.grammar_check import CHECKER
from emel.server.app import create_app
from emel.server.openapi import document
from emel.server.served import ServedModels
from emel.server.settings import Settings
from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOKS = ("/props", "/slots")  # 503 of a model that was unloaded, or is being loaded


def no_failure(ctx: Any, response: Any, case: schemathesis.Case[Any]) -> bool | None:
    if response.status_code == 503 and case.path in LOOKS:
        assert "is not loaded" in response.text or "Loading model" in response.text
        return None
    return not_a_server_error(ctx, response, case)


CHECKS = [no_failure, status_code_conformance, content_type_conformance, response_schema_conformance]
STREAMS = ("/live", "/trace")  # they end with the server


def app() -> Any:
    return create_app(ServedModels({"fake": lambda: cast("Any", FakeModel("Hi", "!"))}), Settings())


SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", app())


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    yield
    CHECKER.close()


@pytest.mark.slow
@SCHEMA.exclude(path=list(STREAMS)).parametrize()
@hypothesis.settings(max_examples=10, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_no_request_is_answered_with_a_failure_or_with_what_the_document_does_not_tell(
    case: schemathesis.Case[Any],
) -> None:
    case.call_and_validate(checks=CHECKS)


def test_every_route_is_in_the_document() -> None:
    routes = {route.path.replace(":path", "") for route in app().routes}
    twins = {"/chat/completions", "/completions", "/embeddings", "/models", "/v1/health", "/page/{name}"}
    assert set(document()["paths"]) == routes - twins


def test_fields_are_described() -> None:
    properties = document()["components"]["schemas"]["ChatRequest"]["properties"]
    assert "allowed: numbers from 0.0 to 100.0" in properties["temperature"]["description"]
    assert set(document()["components"]["schemas"]["ChatRequest"]["required"]) == {"messages"}
