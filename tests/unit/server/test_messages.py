"""Anthropic's messages, over a model whose answers are in the test's hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from unit.server.fake_model import FakeModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient

MESSAGES = [{"role": "user", "content": "Hi"}]
FORM = {"type": "json_schema", "schema": {"const": 7}}


@pytest.mark.parametrize("field", [{"output_config": {"format": FORM}}, {"output_format": FORM}])
def test_the_form_of_a_message_is_what_its_answer_obeys(
    serve: Callable[..., TestClient], field: dict[str, Any]
) -> None:
    model = FakeModel("7")
    client = serve(model)
    body = {"messages": MESSAGES, "max_tokens": 9}
    assert client.post("/v1/messages", json={**body, **field}).status_code == 200
    assert model.requests[0].options["new_constraint"] is not None
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, 3):
        response = client.post("/v1/messages", json={**body, "output_config": {"format": wrong}})
        assert response.status_code == 400, response.text
