"""Constraints through the whole server, over a model of random weights, which knows nothing of JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.testclient import TestClient

PATH = "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None, True]}, "maxItems": 3},
        "size": {"type": "number", "minimum": 0, "maximum": 9},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}


@pytest.fixture
def client(serve: Callable[[Path], TestClient], tiny: Path) -> TestClient:
    return serve(tiny)


def choices(client: TestClient, **body: Any) -> list[dict[str, Any]]:
    response = client.post(PATH, json={"prompt": "x", "max_tokens": 400, **body})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["choices"]
    return found


def test_random_weights_write_valid_json(client: TestClient) -> None:
    texts = {choices(client, json_schema=SCHEMA, seed=seed)[0]["text"] for seed in range(15)}
    assert len(texts) > 5
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_a_stream_says_the_same(client: TestClient) -> None:
    body = {"prompt": "x", "max_tokens": 400, "json_schema": SCHEMA, "seed": 3}
    [whole] = choices(client, **body)
    events = client.post(PATH, json={**body, "stream": True}).text.split("\n\n")
    parts = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-2]]
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert parts[-1]["finish_reason"] == whole["finish_reason"] == "stop"


def test_several_answers_obey_each_for_itself(client: TestClient) -> None:
    several = choices(client, regex="[0-9]{4}-[ab]", seed=5, n=3, temperature=2)
    assert all(re.fullmatch("[0-9]{4}-[ab]", each["text"]) for each in several)
    alone = [choices(client, regex="[0-9]{4}-[ab]", seed=5 + index, temperature=2)[0]["text"] for index in range(3)]
    assert [each["text"] for each in several] == alone


def test_max_tokens_and_stop_end_a_constrained_answer_too(client: TestClient) -> None:
    [cut] = choices(client, regex="[0-9]{50}", max_tokens=3, temperature=0)
    assert re.fullmatch("[0-9]{1,3}", cut["text"])
    assert cut["finish_reason"] == "length"
    [stopped] = choices(client, regex="[0-9]{5}x[0-9]{5}", stop="x")
    assert re.fullmatch("[0-9]{5}", stopped["text"])
    assert stopped["finish_reason"] == "stop"


def test_an_answer_ends_where_its_choice_does(client: TestClient) -> None:
    for seed in range(8):
        [choice] = choices(client, choice=["yes", "no", "nobody"], seed=seed, temperature=3)
        assert choice["text"] in {"yes", "no", "nobody"}
        assert choice["finish_reason"] == "stop"


def test_json_mode_ends(client: TestClient) -> None:
    """Greedily, which with a small model would be white space for ever."""
    [choice] = choices(client, response_format={"type": "json_object"}, temperature=0, max_tokens=450)
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["text"]), dict)
    assert not re.search(r"[ \n]{17}", re.sub(r'"(\\.|[^"\\])*"?', "", choice["text"]))


@pytest.mark.parametrize("wanted", [{"response_format": {"type": "json_object"}}, {"json_schema": SCHEMA}])
def test_white_space_is_bounded_however_much_the_model_wants_it(client: TestClient, wanted: dict[str, Any]) -> None:
    spaces = [[text, 1000] for text in " \n\t\r"]
    [choice] = choices(client, **wanted, logit_bias=spaces, seed=1, max_tokens=450)
    between = re.findall(r"\s+", re.sub(r'"(\\.|[^"\\])*"?', "", choice["text"]))
    assert between, "it takes what white space it may"
    assert max(map(len, between)) <= 16, "at most 8 on either side of where something could be"
    if wanted == {"json_schema": SCHEMA}:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)


def test_min_tokens_make_an_answer_no_longer_than_its_constraint(client: TestClient) -> None:
    [short] = choices(client, regex="[0-9]{2}", min_tokens=5, max_tokens=8)
    assert re.fullmatch("[0-9]{2}", short["text"])
    assert short["finish_reason"] == "stop"
    for seed in range(5):
        [longer] = choices(client, regex="[0-9]{2}x*", min_tokens=5, max_tokens=8, seed=seed)
        assert re.fullmatch("[0-9]{2}x{3,6}", longer["text"])
