"""`emel verify`: loads the model as the transcript says, reads whole answers and streams, and says what is amiss."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.cli.main import main
from emel.engine.transcript import record
from model.tiny_models import TINY_MODELS, write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("verify") / "phi3.gguf"
    write_tiny_model(made, TINY_MODELS["phi3"](), "Q8_0")
    return made


def transcript(path: Path, **options: Any) -> dict[str, Any]:
    with emel.load(path, n_threads=1, **options) as model:
        ids = model.tokenize("ab")
        completion = model.generate_ids(ids, max_tokens=4, digests=True, seed=1)
        return record(model, ids, completion, is_constrained=False).to_json()


def verify(given: object, folder: Path, *words: str) -> int:
    file = folder / "transcript.json"
    file.write_text(given if isinstance(given, str) else json.dumps(given))
    return main(["verify", str(file), "-t", "1", *words])


@pytest.mark.parametrize(
    "options", [{}, {"kv_type": "f32"}, {"kv_type": "q8_0", "activations": "int8"}, {"n_ctx": 64}, {"n_ctx": 65}]
)
def test_the_model_is_loaded_as_the_transcript_says(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    told = transcript(path, **options)
    assert verify(told, tmp_path, "-m", str(path)) == 0
    assert capsys.readouterr() == (f"equal: 4 steps, {told['fingerprint']}\n", "")


def test_old_transcripts_are_of_f16(path: Path, tmp_path: Path) -> None:
    told = transcript(path)
    old = {key: value for key, value in told.items() if key not in ("activations", "kv_type", "n_ctx")}
    assert verify(old, tmp_path, "-m", str(path)) == 0


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            ["--kv-type", "q8_0"],
            "the same model with other activations, kv_type or context",
            "to the transcript",
        ),
        (
            ["--override-kv", "phi3.rope.freq_base=float:7"],
            "that is another model",
            "give -m, --lora and --override-kv",
        ),
    ],
)
def test_what_differs_of_the_model_is_told(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str, hint: str
) -> None:
    assert verify(transcript(path), tmp_path, "-m", str(path), *words) != 0
    error = capsys.readouterr().err
    assert message in error
    assert hint in error


def test_a_context_that_the_model_has_not_hints_at_the_model(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify({**transcript(path), "n_ctx": 9999}, tmp_path, "-m", str(path)) != 0
    error = capsys.readouterr().err
    assert "the model cannot be loaded as the transcript says (" in error
    assert "n_ctx is 9999" in error
    assert "hint: give -m MODEL as the server had it" in error


def test_answers_and_streams_are_read(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = transcript(path)
    spoiled = {**told, "steps": [[told["steps"][0][0], "0" * 16], *told["steps"][1:]]}
    equal = f"equal: 4 steps, {told['fingerprint']}\n"
    assert verify({"choices": [{"index": 0}], "transcript": told}, tmp_path, "-m", str(path)) == 0
    assert capsys.readouterr().out == equal
    several = {"choices": [{"index": 0, "transcript": told}, {"index": 1, "transcript": spoiled}]}
    assert verify(several, tmp_path, "-m", str(path)) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"choice 0: {equal}choice 1: step 1 of 4 differs: ")
    events = [
        {"choices": [{"index": 1, "delta": {}}]},
        *({"choices": [{"index": i}], "transcript": told} for i in (1, 0)),
    ]
    stream = ": a comment\n\n" + "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
    assert verify(stream, tmp_path, "-m", str(path)) == 0
    assert capsys.readouterr().out == f"choice 1: {equal}choice 0: {equal}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "is neither JSON nor a stream of events"),
        ("hello", "is neither JSON nor a stream of events"),
        ("data: {\n\n", "is a stream with an event that is no JSON"),
        ("data: [DONE]\n\n", "is neither JSON nor a stream of events"),
        ('data: {"choices": []}\n\n', "has no transcript"),
        ("{}", "has no transcript"),
        ('{"choices": 3}', "has no transcript"),
        ('{"choices": [3], "transcript": 3}', "this is no transcript"),
        ("[" * 100_000, "is neither JSON nor a stream of events"),
    ],
)
def test_what_has_no_transcript_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    assert verify(given, tmp_path) != 0
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_default_model_is_named(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = transcript(path)
    monkeypatch.setattr("emel.cli.models.locate", lambda *_args, **_named: path)
    assert verify(told, tmp_path) == 0
    assert "without -m the model is smollm2-135m-instruct, the default" in capsys.readouterr().err
