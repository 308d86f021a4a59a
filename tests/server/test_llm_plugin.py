"""The plugin for the `llm` command, through llm's own API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

llm = pytest.importorskip("llm")

from emel.llm_plugin import MODELS, EmelModel, register_models  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def model(smollm2_path: Path) -> Iterator[EmelModel]:
    made = EmelModel("small", str(smollm2_path))
    yield made
    if made._model is not None:
        made._model.close()


def test_models_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS, "a=one.gguf, b=hf:x/y:Q4_K_M,path/to/two.gguf")
    registered: list[EmelModel] = []
    register_models(registered.append)
    assert [each.model_id for each in registered] == ["emel/a", "emel/b", "emel/two"]
    assert [each._path for each in registered] == ["one.gguf", "hf:x/y:Q4_K_M", "path/to/two.gguf"]
    for nothing in ("", " , ", None):
        monkeypatch.delenv(MODELS) if nothing is None else monkeypatch.setenv(MODELS, nothing)
        registered.clear()
        register_models(registered.append)
        assert [each.model_id for each in registered] == ["emel/smollm2"]


def test_what_names_no_model_or_a_name_again_is_passed_over_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(MODELS, "empty=,small=a.gguf,small=b.gguf,dir/small.gguf")
    registered: list[EmelModel] = []
    register_models(registered.append)
    assert [(each.model_id, each._path) for each in registered] == [("emel/small", "a.gguf")]
    told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("hint")]
    assert ["'empty=' has no model" in told[0], *("called 'small'" in line for line in told[1:])] == [True] * 3


@pytest.mark.model
def test_a_conversation_goes_on(model: EmelModel) -> None:
    conversation = model.conversation()
    first = conversation.prompt("The capital of France?", system="Be brief.", temperature=0.0, max_tokens=12)
    assert "France" in first.text()
    assert first.usage().output in range(1, 13)
    second = conversation.prompt("And of Italy?", temperature=0.0, max_tokens=12, stream=False)
    assert second.text()
    assert second.usage().input > first.usage().input


@pytest.mark.model
def test_a_wrong_value_is_told_by_the_model(model: EmelModel) -> None:
    with pytest.raises(ValueError, match="temperature is -7"):
        model.prompt("Hi", temperature=-7).text()


@pytest.mark.model
def test_an_answer_obeys_the_schema_that_was_asked_for(model: EmelModel) -> None:
    schema = {
        "type": "object",
        "properties": {"is_city": {"type": "boolean"}},
        "required": ["is_city"],
        "additionalProperties": False,
    }
    answer = model.prompt("Is Paris a city?", schema=schema, temperature=0.0, max_tokens=40).text()
    assert isinstance(json.loads(answer)["is_city"], bool)


@pytest.mark.model
def test_a_short_schema_means_the_properties_it_names(model: EmelModel) -> None:
    schema = llm.schema_dsl("city str, country str")
    assert "additionalProperties" not in schema
    answer = model.prompt("What is the capital of France?", schema=schema, temperature=0.0, max_tokens=80).text()
    assert set(json.loads(answer)) == {"city", "country"}
    assert "\n" not in answer


@pytest.mark.model
def test_an_answer_that_was_cut_is_told_and_json_that_was_is_an_error(
    model: EmelModel, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = model.prompt("Tell a story.", temperature=0.0, max_tokens=3)
    assert cut.text()
    assert "cut after 3 tokens by -o max_tokens" in capsys.readouterr().err
    assert cut.response_json == {"finish_reason": "length"}
    with pytest.raises(llm.ModelError, match=r"cut after 3 tokens by -o max_tokens and is no JSON"):
        model.prompt("A city", schema=llm.schema_dsl("city str"), temperature=0.0, max_tokens=3).text()
