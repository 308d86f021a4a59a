"""perplexity, accuracy and quantize as commands, on a tiny model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.process import run_emel
from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.gguf, and text.txt of 150 tokens (bytes)."""
    path = tmp_path_factory.mktemp("tools")
    write_tiny_llama(path / "model.gguf", Geometry(n_layers=1, d_model=256, d_ff=256), "F32")
    (path / "text.txt").write_text("a quick brown fox " * 9, encoding="utf-8")
    return path


def test_perplexity_prints_a_line_or_json(folder: Path) -> None:
    words = ("perplexity", str(folder / "model.gguf"), str(folder / "text.txt"), "-c", "64", "-t", "1")
    plain = run_emel(*words, folder=folder)
    assert plain.code == 0, plain.err
    assert plain.err == ""
    figures = json.loads(run_emel(*words, "--json", folder=folder).out)
    assert (figures["n_chunks"], figures["n_ctx"], figures["n_scored"]) == (2, 64, 62)
    value, error = figures["perplexity"], figures["error"]
    assert plain.out == f"perplexity {value:.4f} +/- {error:.5f} (2 chunks of 64 tokens, 62 scored)\n"


def test_perplexity_of_a_short_text_is_refused(folder: Path) -> None:
    outcome = run_emel("perplexity", str(folder / "model.gguf"), "-", stdin=b"short", folder=folder)
    assert outcome.code == 1
    assert "emel: error: the text has" in outcome.err
    assert "a chunk needs 512" in outcome.err


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("perplexity",), "no text: give a file, or - for standard input"),
        (("perplexity", "smollm2"), "no text: 'smollm2' is a model; give a file behind it, or - for standard input"),
        (("perplexity", "a.gguf"), "no text: 'a.gguf' is a model; give a file behind it, or - for standard input"),
        (("perplexity", "a", "b", "c"), "unexpected argument 'b': one model and one file are allowed"),
        (("accuracy", "a", "b"), "one of the arguments --base --base-logits --save-logits is required"),
        (("accuracy", "a", "b", "--base-logits", "c"), "unexpected argument 'b': the text's tokens are in SAVED"),
        (("accuracy", "a", "--base-logits", "c", "-c", "64"), "argument -c: the length of chunks is that of SAVED"),
        (("quantize", "a", "b"), "the following arguments are required: TYPE"),
    ],
)
def test_wrong_words_are_usage_errors(folder: Path, words: tuple[str, ...], seen: str) -> None:
    outcome = run_emel(*words, folder=folder)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"emel: error: {seen}")


def test_quantize_writes_a_copy_that_accuracy_measures(folder: Path) -> None:
    model, copy, saved, text = (str(folder / name) for name in ("model.gguf", "q.gguf", "saved", "text.txt"))
    made = run_emel("quantize", model, copy, "q4_k", folder=folder)
    assert made.code == 0, made.err
    assert " bits a value\n" in made.err
    again = run_emel("quantize", model, copy, "q4_k", folder=folder)
    assert (again.code, again.err.splitlines()[0]) == (2, f"emel: error: {copy} exists: -f replaces it")

    options = ("-t", "1", "--json")
    assert run_emel("accuracy", model, text, "-c", "64", "--save-logits", saved, folder=folder).code == 0
    from_file = json.loads(run_emel("accuracy", copy, "--base-logits", saved, *options, folder=folder).out)
    from_model = json.loads(run_emel("accuracy", copy, text, "-c", "64", "--base", model, *options, folder=folder).out)
    assert from_file == from_model
    assert from_file["mean_kl"] > 0
    itself = run_emel("accuracy", model, "--base-logits", saved, "-t", "1", folder=folder)
    assert "same likeliest token    100.000%\n" in itself.out


def test_quantize_takes_a_model_by_its_name(folder: Path) -> None:
    outcome = run_emel("quantize", "smolm2", str(folder / "x.gguf"), "q4_k", folder=folder)
    assert outcome.code == 1
    assert outcome.err.startswith("emel: error: no model is called 'smolm2', and there is no such file (did you mean")


def test_quantize_names_the_types_there_are(folder: Path) -> None:
    outcome = run_emel("quantize", str(folder / "model.gguf"), str(folder / "x.gguf"), "Q9", folder=folder)
    assert outcome.code == 2
    assert outcome.err.startswith("emel: error: type 'Q9' is unknown: allowed are F32, F16, BF16, Q8_0")
    assert not (folder / "x.gguf").exists()


def test_convert_says_what_a_directory_lacks(folder: Path) -> None:
    outcome = run_emel("convert", str(folder), str(folder / "x.gguf"), folder=folder)
    assert outcome.code == 1
    assert outcome.err.startswith(
        f"emel: error: '{folder}/config.json' is missing: a Hugging Face model directory has it"
    )
    nowhere = run_emel("convert", "owner/repo", str(folder / "x.gguf"), folder=folder)
    assert nowhere.code == 1
    assert nowhere.err.splitlines() == [
        "emel: error: 'owner/repo' is no directory",
        "hint: hf download OWNER/REPO --local-dir DIR fetches the files of a model from Hugging Face",
    ]
    there = run_emel("convert", str(folder), str(folder / "model.gguf"), folder=folder)
    assert (there.code, there.err.splitlines()[0]) == (2, f"emel: error: {folder}/model.gguf exists: -f replaces it")
