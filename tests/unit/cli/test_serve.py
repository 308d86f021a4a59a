"""What `emel serve` makes of its command line, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.cli.main import build_parser, main
from emel.cli.serve import _models
from emel.cli.terminal import UsageError
from emel.server.errors import ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from emel.server.served import ServedModels


def models_of(folder: Path, *words: str) -> ServedModels:
    for name in ("one.gguf", "two.gguf"):
        (folder / name).touch()
    paths = [str(folder / name) for name in ("one.gguf", "two.gguf")]
    return _models(build_parser("serve").parse_args(["serve", *paths, *words]))


def test_aliases_are_names_of_the_first_model(tmp_path: Path) -> None:
    models = models_of(tmp_path, "--alias", "gpt-4o, small")
    assert [each.name for each in models] == ["one", "two"]
    assert models.find("gpt-4o") is models.find("small") is models.find("one") is models.first
    assert models.find("two") is not models.first
    with pytest.raises(ApiError, match="served are one, two, gpt-4o, small"):
        models.find("three")


def test_a_model_answers_to_the_name_that_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("SmolLM2.gguf", "quantised.gguf", "mine.gguf"):
        (tmp_path / file).touch()
    places = {"smollm2": "SmolLM2.gguf", "hf:owner/repo:Q8_0": "quantised.gguf", "hf:owner/other": "mine.gguf"}
    monkeypatch.setattr("emel.cli.serve.locate", lambda model, offline: tmp_path / places[model])
    words = ["smollm2", "hf:owner/repo:Q8_0", "own=hf:owner/other", "-a", "gpt-4o"]
    models = _models(build_parser("serve").parse_args(["serve", *words]))
    assert [each.name for each in models] == ["SmolLM2", "quantised", "own"]
    for name in ("smollm2", "smollm2-135m-instruct", "gpt-4o"):
        assert models.find(name) is models.first
    assert models.find("owner/repo:Q8_0") is models.find("quantised")
    with pytest.raises(ApiError, match="there is no model 'owner/other'"):
        models.find("owner/other")


def test_an_alias_that_is_the_name_of_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="argument -a/--alias: 'two' is the name of a model"):
        models_of(tmp_path, "-a", "two")


def test_what_is_always_so_may_be_asked_for(tmp_path: Path) -> None:
    models = models_of(tmp_path, "--metrics", "--slots", "--props", "--jinja", "-cb", "--embeddings", "-np", "2")
    assert models.first.name == "one"


def test_models_may_be_given_by_flags(tmp_path: Path) -> None:
    (tmp_path / "three.gguf").touch()
    models = models_of(tmp_path, "-m", str(tmp_path / "three.gguf"))
    assert [each.name for each in models] == ["one", "two", "three"]
    alone = _models(build_parser("serve").parse_args(["serve", "-m", str(tmp_path / "two.gguf")]))
    assert [each.name for each in alone] == ["two"]


@pytest.mark.parametrize("words", [["-n", "2"], ["-n2"], ["-n=2"]])
def test_a_short_option_is_not_taken_for_a_longer_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert f"unrecognized arguments: {words[0]}" in capsys.readouterr().err
