"""The commands that report: inspect, tokenize, machines, doctor, pull; on a small made-up model file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.process import Terminal, run_emel
from emel.cli.main import main
from model.every_model import EVERY_MODEL
from model.gguf_writing import finish
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer llama of random weights that cannot be computed with, but can be looked at."""
    import gguf
    import numpy as np

    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_string("general.name", "a name\nof two lines")
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_array("tokenizer.ggml.tokens", [f"t{index}" for index in range(100)])
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), dtype=np.float32))
    writer.add_tensor("output.weight", np.zeros((100, 64), dtype=np.float16))
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    finish(writer)
    return str(path)


def json_of(*words: str, folder: Path) -> Any:
    outcome = run_emel(*words, "--json", folder=folder)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_inspect_shows_metadata_tensors_and_memory(model: str, tmp_path: Path) -> None:
    outcome = run_emel("inspect", model, folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[0] == model
    assert "GGUF version 3, 3 tensors, 12,864 values" in lines
    assert "general.name STRING 'a name\\nof two lines'" in lines
    assert "llama.rope.freq_base FLOAT32 10000" in lines
    assert "tokenizer.ggml.tokens array of STRING ['t0', 't1', 't2', 't3', ... (100)]" in lines
    assert "token_embd.weight F32 100 x 64 25,600 B" in lines
    assert "context of 4,096 1.0 MB" in lines  # 2 layers, 2 heads of 16, keys and values of 2 bytes


def test_inspect_json_is_whole_and_agrees(model: str, tmp_path: Path) -> None:
    content = json_of("inspect", model, "-c", "100", folder=tmp_path)
    assert content["path"] == model
    assert content["metadata"]["llama.block_count"] == {"type": "UINT32", "value": 2}
    tokens = content["metadata"]["tokenizer.ggml.tokens"]["value"]
    assert tokens == {"count": 100, "first": ["t0", "t1", "t2", "t3"]}
    shapes = {tensor["name"]: (tensor["type"], tensor["shape"]) for tensor in content["tensors"]}
    assert shapes["output.weight"] == ("F16", [100, 64])
    memory = content["memory"]
    assert memory["file_bytes"] == 100 * 64 * 4 + 100 * 64 * 2 + 64 * 4
    assert memory["read_bytes_per_token"] == memory["file_bytes"] - 100 * 64 * 4  # the embedding is not the output
    assert memory["kv_bytes"] == {"100": 2 * 7 * 16 * 2 * 16 * 2 * 2}
    full = json_of("inspect", model, "--full", folder=tmp_path)
    assert len(full["metadata"]["tokenizer.ggml.tokens"]["value"]) == 100


def test_inspect_sends_no_codes_of_the_file_to_the_terminal(tmp_path: Path) -> None:
    import gguf
    import numpy as np

    path = tmp_path / "codes.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("evil\x1b[2Jkey", "evil\x1b[2Jtext")
    writer.add_array("evil.array", ["\x1b[2J"])
    writer.add_tensor("evil\x1b[2Jtensor", np.zeros((2, 4), dtype=np.float32))
    finish(writer)
    outcome = run_emel("inspect", str(path), folder=tmp_path)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert outcome.out.count("\\x1b[2J") == 4


def test_inspect_of_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "note.gguf"
    path.write_text("not a model at all, but long enough for a header")
    outcome = run_emel("inspect", str(path), folder=tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("emel: error: ")
    assert outcome.err.count("\n") == 1
    assert str(path) in outcome.err


def test_machines_lists_draws_and_tabulates(tmp_path: Path) -> None:
    listed = run_emel("machines", folder=tmp_path)
    assert (listed.code, listed.err) == (0, "")
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert "ReaderMachine" in names
    assert names == list(dict.fromkeys(names))
    table = run_emel("machines", "reader", folder=tmp_path).out.splitlines()
    assert table[0].split() == ["source", "event", "guard", "effect", "destination"]
    assert run_emel("machines", "READERMACHINE", "--table", folder=tmp_path).out.splitlines() == table
    assert run_emel("machines", "reader", "--diagram", folder=tmp_path).out.startswith("stateDiagram-v2\n    [*] --> ")
    everything = run_emel("machines", "--diagram", folder=tmp_path).out
    assert everything.count("stateDiagram-v2") == len(names)


def test_machines_unknown_name_lists_the_known(tmp_path: Path) -> None:
    outcome = run_emel("machines", "flurb", folder=tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("emel: error: machine 'flurb' is unknown; machines: ")
    assert "ReaderMachine" in outcome.err


def test_doctor_reports_machine_and_model(model: str, tmp_path: Path) -> None:
    report = json_of("doctor", model, "-t", "1", folder=tmp_path)
    assert report["route"]["name"] in report["available_routes"]
    assert "scalar" in report["available_routes"]
    assert 1 <= report["cpu"]["n_cores"] <= report["cpu"]["n_allowed"] <= report["cpu"]["n_logical"]
    assert report["memory"]["available"] > 0
    assert report["bytes_per_second"]["memory"] > 1e8
    assert report["threads"] == {"n_threads": 1, "reason": "as asked for"}
    prospect = report["model"]
    assert prospect["fits"] is True
    assert prospect["decode_tokens_per_second_at_most"] == pytest.approx(
        report["bytes_per_second"]["memory"] / prospect["footprint"]["read_bytes_per_token"]
    )


def test_doctor_says_in_words_what_it_found(model: str, tmp_path: Path) -> None:
    outcome = run_emel("doctor", model, "--no-measure", folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    heads = [line.split()[0] for line in outcome.out.splitlines() if line[0] != " "]
    assert heads == ["CPU", "kernels", "threads", "memory", "model"]
    assert "with a context of 4096 tokens: it fits" in outcome.out


@pytest.mark.parametrize(("load", "is_told"), [(0.5, False), (1000.0, True)])
def test_doctor_tells_of_a_busy_machine(
    load: float, is_told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    assert main(["doctor", "--no-measure"]) == 0
    assert (f"load {load:.1f} on " in capsys.readouterr().out) == is_told


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("mixture") / "mixture.gguf"
    write_tiny_model(path, EVERY_MODEL["mixtral"](), "Q8_0")
    return str(path)


def test_inspect_says_what_would_be_streamed(mixture: str, tmp_path: Path) -> None:
    outcome = run_emel("inspect", mixture, "--memory", "5.5MB", "-c", "256", folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    words = outcome.out.split("within 5.5 MB")[1]
    assert "a context of 256 tokens" in words
    assert "each token reads" in words
    within = json_of("inspect", mixture, "--memory", "5.5MB", "-c", "256", folder=tmp_path)["within"]
    assert within["budget_bytes"] == 5_500_000
    assert 0 < within["streamed_bytes_per_token"] < within["weights_bytes"]
    refused = run_emel("inspect", mixture, "--memory", "2MB", folder=tmp_path)
    assert (refused.code, refused.out) == (1, "")
    least = json_of("inspect", mixture, folder=tmp_path)["memory"]["least_bytes"]
    assert f" 2000000 bytes of memory are too few: {least} are the least with a context of " in refused.err
    assert f"(--memory {least})" in run_emel("inspect", mixture, folder=tmp_path).out
    assert run_emel("inspect", mixture, "--memory", str(least), folder=tmp_path).code == 0
    assert run_emel("inspect", mixture, "--memory", str(least - 1), folder=tmp_path).code == 1


def test_doctor_says_what_would_be_streamed(mixture: str, tmp_path: Path) -> None:
    words = run_emel("doctor", mixture, "--memory", "1GiB", "--no-measure", folder=tmp_path).out
    assert "within 1.1 GB (--memory):" in words
    assert "nothing is streamed" in words
    report = json_of("doctor", mixture, "--memory", "2MB", "--no-measure", folder=tmp_path)
    assert report["model"]["streamed"] is None
    least = report["model"]["least_bytes"]
    assert f"2000000 bytes of memory are too few: {least} are the least" in report["model"]["streamed_failure"]
    assert f"from --memory {least} on" in words


def test_doctor_obeys_the_forced_route_and_names_a_wrong_one(tmp_path: Path) -> None:
    forced = run_emel("doctor", "--no-measure", folder=tmp_path, extra={"EMEL_ISA": "scalar"})
    assert "kernels     scalar: the environment variable EMEL_ISA names it" in forced.out
    wrong = run_emel("doctor", "--no-measure", folder=tmp_path, extra={"EMEL_ISA": "sse9"})
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("emel: error: the environment variable EMEL_ISA names the CPU route 'sse9'")


def test_doctor_never_fetches(tmp_path: Path) -> None:
    assert "none fetched yet: emel pull" in run_emel("doctor", "--no-measure", folder=tmp_path).out
    outcome = run_emel("doctor", "smollm2", folder=tmp_path)
    assert outcome.code == 1
    assert "fetching is switched off" in outcome.err


def test_pull_lists_without_fetching(tmp_path: Path) -> None:
    outcome = run_emel("pull", "--list", folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [row[0] for row in rows] == ["smollm2-135m-instruct, smollm2", "gemma3-270m"]
    assert all(row[-1] == "not fetched" for row in rows)


def test_pull_shows_terms_and_declines_without_an_answer(tmp_path: Path) -> None:
    outcome = run_emel("pull", "gemma3-270m", folder=tmp_path, stdin="y\n")  # not a terminal: not an answer
    assert (outcome.code, outcome.out) == (1, "")
    terms, error, hint = outcome.err.splitlines()
    assert "ai.google.dev/gemma/terms" in terms
    assert error == "emel: error: gemma3-270m was not fetched, because its terms were not accepted"
    assert hint == "hint: to accept them: emel pull gemma3-270m --yes"


def test_pull_asks_on_a_terminal_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, ["pull", "gemma3-270m"], {})
    terminal.read_until("ai.google.dev/gemma/terms")
    terminal.read_until("Do you accept these terms? [y/N] ")
    terminal.type("\n")
    terminal.read_until("emel: error: gemma3-270m was not fetched, because its terms were not accepted")
    assert terminal.end() == 1
    assert not (tmp_path / "cache").exists()


@pytest.mark.model
def test_pull_says_where_the_default_model_is(smollm2_path: Path, tmp_path: Path) -> None:
    models = tmp_path / "cache" / "models"
    models.mkdir(parents=True)
    (models / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(smollm2_path)
    outcome = run_emel("pull", "--offline", folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{models / 'SmolLM2-135M-Instruct.Q4_1.gguf'}\n"


@pytest.mark.model
def test_tokenize_shows_ids_and_pieces(smollm2_path: Path, tmp_path: Path) -> None:
    words = ("tokenize", "-m", str(smollm2_path), "Hello \u00f6 \N{PARTY POPPER}")
    rows = json_of(*words, folder=tmp_path)
    pieces = [row["piece"].encode() if isinstance(row["piece"], str) else bytes(row["piece"]) for row in rows]
    assert b"".join(pieces).decode() == "Hello \u00f6 \N{PARTY POPPER}"
    assert rows[0] == {"id": 19556, "piece": "Hello"}
    assert any(isinstance(row["piece"], list) for row in rows)  # parts of the emoji
    ids = run_emel(*words, "--ids", folder=tmp_path).out
    assert ids.split() == [str(row["id"]) for row in rows]
    lines = run_emel(*words, folder=tmp_path).out.splitlines()
    assert lines[0].split() == ["19556", "'Hello'"]
    piped = run_emel("tokenize", "-m", str(smollm2_path), "--ids", folder=tmp_path, stdin="Hello\n").out
    assert piped.split()[0] == "19556"
    assert len(piped.split()) == 2  # the line break is part of the text


@pytest.mark.model
def test_tokenize_reads_control_tokens_only_when_asked(smollm2_path: Path, tmp_path: Path) -> None:
    words = ("tokenize", "-m", str(smollm2_path), "--ids", "<|im_start|>")
    assert len(run_emel(*words, folder=tmp_path).out.split()) > 1
    assert run_emel(*words, "--parse-special", folder=tmp_path).out == "1\n"


def test_inspect_refuses_a_context_that_the_model_has_not(model: str, tmp_path: Path) -> None:
    outcome = run_emel("inspect", model, "-c", "4097", folder=tmp_path)
    assert (outcome.code, outcome.out) == (1, "")
    assert "n_ctx is 4097: this model allows 1 to 4096" in outcome.err
    assert run_emel("inspect", model, "-c", "4096", folder=tmp_path).code == 0


def test_inspect_shows_a_file_whose_sizes_no_memory_has(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "damaged.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_head_count(2**32 - 1)
    writer.add_key_length(64)
    finish(writer)
    outcome = run_emel("inspect", str(path), folder=tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "context of" not in outcome.out
