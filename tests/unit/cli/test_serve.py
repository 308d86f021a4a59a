"""What `emel serve` makes of its command line, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.cli.main import build_parser, main
from emel.cli.serve import _models, _paths, _settings
from emel.cli.terminal import UsageError
from emel.engine.options import DEFAULT_CONTEXT
from emel.server.errors import ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from emel.server.served import ServedModels


def models_from(*words: str) -> ServedModels:
    arguments = build_parser("serve").parse_args(["serve", *words])
    return _models(arguments, *_paths(arguments))


def models_of(folder: Path, *words: str) -> ServedModels:
    for name in ("one.gguf", "two.gguf"):
        (folder / name).touch()
    paths = [str(folder / name) for name in ("one.gguf", "two.gguf")]
    return models_from(*paths, *words)


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
    models = models_from(*words)
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
    alone = models_from("-m", str(tmp_path / "two.gguf"))
    assert [each.name for each in alone] == ["two"]


@pytest.mark.parametrize("words", [["-n2"], ["-x"], ["-x=2"]])
def test_a_short_option_is_not_taken_for_a_longer_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert f"unrecognized arguments: {words[0]}" in capsys.readouterr().err


def test_repositories_may_be_given_by_a_flag_of_their_own() -> None:
    words = ["serve", "-hf", "owner/repo:Q8_0", "-m", "a.gguf", "--hf-repo", "small=hf:owner/other"]
    assert build_parser("serve").parse_args(words).model == ["hf:owner/repo:Q8_0", "a.gguf", "small=hf:owner/other"]


def test_a_body_is_limited_by_an_amount() -> None:
    parser = build_parser("serve")
    assert _settings(parser.parse_args(["serve", "--max-body", "10MiB"])).max_body_bytes == 10 << 20
    assert _settings(parser.parse_args(["serve", "--max-body", "1000"])).max_body_bytes == 1000


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--max-body", "50%"], "argument --max-body: '50%' is no amount"),
        (["--max-body", "0"], "argument --max-body: '0' is below 1 byte"),
        (["--memory", "lots"], "argument --memory: 'lots': give bytes, an amount such as 2GiB"),
        (["--memory", "5"], "argument --memory: '5', which are bytes and hold no model: say the unit"),
        (["--host", ""], "argument --host: it is empty"),
        (["--host", "http://127.0.0.1"], "argument --host: 'http://127.0.0.1' is a URL"),
        (["--cors-origins", "localhost"], "argument --cors-origins: 'localhost' is no origin: http://HOST[:PORT]"),
        (["--cors-origins", "http://a,http://b/"], "argument --cors-origins: 'http://b/' is no origin"),
        (["--api-key", ""], "--api-key was given, but there is no key in it"),
        (["--api-key-file", "nowhere"], "--api-key-file nowhere: no such file or directory"),
    ],
)
def test_what_a_flag_cannot_take_is_told_before_anything_is_served(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    assert capsys.readouterr().err.startswith(f"emel: error: {error}")


def test_origins_are_taken_as_browsers_send_them() -> None:
    words = ["serve", "--cors-origins", "https://a.example:8443, null,chrome-extension://abc"]
    found = _settings(build_parser("serve").parse_args(words)).cors_origins
    assert found == ("https://a.example:8443", "null", "chrome-extension://abc")


def test_the_default_context_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert f"(default: {DEFAULT_CONTEXT}," in " ".join(capsys.readouterr().out.split())
